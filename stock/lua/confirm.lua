-- Ends units of an order for good: they are paid for.
--
-- KEYS  1 hold    2 request    3 deadlines
-- ARGV  1 order    2 its request    3 what it is for    4 units, empty: all that are open    5 operation id, may be empty
--
-- The hold is the proof that units are held; without one it is the request record, if that was written without a hold.
--
-- Returns {code, units}; the code is
--   1 confirmed by this call, or by an earlier one with this operation id    2 confirmed before    3 released before
--   0 nothing held    -5 the ids belong to something else    -10, 'argument' or 'stored', what
--
-- Everything is checked before the first write. Complexity: O(log holds).

if #KEYS ~= 3 or #ARGV ~= 5 then
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
local asked, answer = judge(proof, 'confirmed')
if not asked then
    return answer
end

local confirmed = proof.confirmed + asked
redis.call('HSET', KEYS[p], 'confirmed', digits(confirmed))
if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[p], 'op:' .. ARGV[5], 'confirmed ' .. digits(asked))
end
if confirmed + proof.released == proof.units then
    redis.call('ZREM', KEYS[3], ARGV[1])
    if proof.record then
        redis.call('HSET', KEYS[2], 'state', 'confirmed')
    end
end
return {1, asked}
