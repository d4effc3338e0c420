-- Tells what is known of locks. It writes nothing.
--
-- KEYS   1..n     lock keys
--        n+1..2n  their fence counters, in the same order
--
-- Returns for each lock key, one after the other: value (or nil), PTTL in ms (-1: none, -2: no such key), number (or
-- nil). O(n).

local n = #KEYS / 2
local values, answer = redis.call('MGET', unpack(KEYS)), {}
for i = 1, n do
    answer[#answer + 1] = values[i]
    answer[#answer + 1] = redis.call('PTTL', KEYS[i])
    answer[#answer + 1] = values[n + i]
end
return answer
