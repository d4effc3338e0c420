-- Gives units of an order back.
--
-- KEYS  1 hold    2 request    3 deadlines    4 counter    5 switch    6 marker
-- ARGV  1 order    2 its request    3 what it is for    4 units, empty: all that are open    5 operation id, may be empty
--       6 1: SQL refused the units; they are withheld instead of given back, and the item is frozen
--
-- The hold is the proof that units are held; without one it is the request record, if that was written without a hold.
--
-- Returns {code, units, 1 if the counter is gone}; the code is
--   1 released by this call, or by an earlier one with this operation id    2 released before    3 confirmed before
--   0 nothing held    -5 the ids belong to something else    -10, 'argument' or 'stored', what
--
-- A counter that has gone is not made again, nor is a marker or a record, and entries of other orders in the marker
-- stay. Everything is checked before the first write. Complexity: O(log holds).

if #KEYS ~= 6 or #ARGV ~= 6 then
    return {-10, 'argument', 'number of arguments'}
end
local p, proof = find()
if not p then
    return proof
end
local kind = redis.call('TYPE', KEYS[3]).ok
if kind ~= 'none' and kind ~= 'zset' then
    return {-10, 'stored', 'deadlines'}
end
local asked, answer = judge(proof, 'released')
if not asked then
    return answer
end

local counter = redis.pcall('GET', KEYS[4])
if broken(counter) or counter and not int(counter) then
    return {-10, 'stored', 'counter'}
end
local withheld = redis.pcall('HGET', KEYS[5], 'withheld')
if broken(withheld) or withheld and not int(withheld) then
    return {-10, 'stored', 'switch'}
end
local entry = redis.pcall('HGET', KEYS[6], ARGV[1])
if broken(entry) then
    return {-10, 'stored', 'marker'}
end
local marked, nth
if entry then
    marked, nth = string.match(entry, '^(%d+)(:?%d*)$')
    marked = int(marked)
    if not marked then
        return {-10, 'stored', 'marker'}
    end
end
local insufficient = ARGV[6] == '1'
if insufficient and withheld and int(withheld) + asked > MAX or not insufficient and counter and int(counter) + asked > MAX then
    return {-10, 'stored', 'counter'}
end

local gone = 0
if insufficient then
    if withheld then
        redis.call('HSET', KEYS[5], 'withheld', digits(int(withheld) + asked), 'state', 'frozen')
    else
        gone = 1
    end
elseif counter then
    redis.call('INCRBY', KEYS[4], digits(asked))
else
    gone = 1
end
if marked and marked > asked then
    redis.call('HSET', KEYS[6], ARGV[1], digits(marked - asked) .. nth)
elseif marked then
    redis.call('HDEL', KEYS[6], ARGV[1])
end
local released = proof.released + asked
redis.call('HSET', KEYS[p], 'released', digits(released))
if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[p], 'op:' .. ARGV[5], 'released ' .. digits(asked))
end
if proof.confirmed + released == proof.units then
    redis.call('ZREM', KEYS[3], ARGV[1])
    if proof.record then
        redis.call('HSET', KEYS[2], 'state', proof.confirmed > 0 and 'confirmed' or 'released')
    end
end
return {1, asked, gone}
