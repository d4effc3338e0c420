-- Says how long keys have to live, and when.
--
-- KEYS  any number of keys in one slot
-- ARGV  none
--
-- Returns {0, server's time in Unix milliseconds, PTTL...}, texts. It writes nothing. Complexity: O(keys).

local reply = {0, digits(clock())}
for i = 1, #KEYS do
    reply[i + 2] = tostring(redis.call('PTTL', KEYS[i]))
end
return reply
