-- Gives units of an order back.
--
-- KEYS  1 hold    2 request    3 deadlines    4 switch    with limits: 5 marker    then the shards of the counter
-- ARGV  1 order    2 its request    3 what it is for    4 units, empty: all that are open    5 operation id, may be empty
--       6 field of the activity in the switch    7 scope of the limit, empty without limits
--       8 layout of the item, empty: the caller knows the place
--       9 1: SQL refused the units; they are withheld instead of given back, and the item is frozen
--       10 shards    11 the user's own shard    12 channel to tell, and    13 the item, that there are units again
--
-- The hold is the proof that units are held; without one it is the request record, if that was written without a hold.
--
-- Returns {code, units, 1 if the counter is gone, trace context of the deduct or empty}; the code is
--   1 released by this call, or by an earlier one with this operation id    2 released before    3 confirmed before
--   0 nothing held    -5 the ids belong to something else    -10, 'argument' or 'stored', what
--   -20, 1, scope or empty, layout: the item lies or is limited otherwise
--
-- A counter that has gone is not made again, nor is a marker or a record, and entries of other orders in the marker
-- stay. Everything is checked before the first write. Complexity: O(log holds).

local shards, home = int(ARGV[10]), int(ARGV[11])
local marker = ARGV[7] ~= '' and 5
local first = marker and 6 or 5
if #ARGV ~= 13 or not shards or shards < 1 or not home or #KEYS ~= first + shards - 1 then
    return {-10, 'argument', 'number of arguments'}
end
local elsewhere = placed()
if elsewhere then
    return elsewhere
end
local p, proof = find()
if not p then
    return proof
end
local asked, answer = judge(proof, 'released')
if not asked then
    return answer
end

local left = counted(first, shards)
if left == false or left and left + asked > MAX then
    return {-10, 'stored', 'counter'}
end
local switch = redis.call('HMGET', KEYS[4], 'withheld', 'returns')
local withheld, returns = int(switch[1]), int(switch[2])
if switch[1] and not (withheld and returns) or withheld and withheld + asked > MAX then
    return {-10, 'stored', 'switch'}
end
local marked, nth
if marker then
    local entry = redis.pcall('HGET', KEYS[marker], ARGV[1])
    if broken(entry) then
        return {-10, 'stored', 'marker'}
    end
    if entry then
        marked, nth = string.match(entry, '^(%d+)(:?%d*)$')
        marked = int(marked)
        if not marked then
            return {-10, 'stored', 'marker'}
        end
    end
end

local gone = 0
if ARGV[9] == '1' then
    if withheld then
        redis.call('HSET', KEYS[4], 'withheld', digits(withheld + asked), 'state', 'frozen')
    else
        gone = 1
    end
elseif left then
    give(first, shards, home, asked)
    if returns then
        redis.call('HSET', KEYS[4], 'returns', digits(returns + 1))
    end
    if left == 0 then
        tell(ARGV[12], ARGV[13])
    end
else
    gone = 1
end
if marked and marked > asked then
    redis.call('HSET', KEYS[marker], ARGV[1], digits(marked - asked) .. nth)
elseif marked then
    redis.call('HDEL', KEYS[marker], ARGV[1])
end
finish(p, proof, 'released', asked, gone)
return {1, asked, gone, proof.trace}
