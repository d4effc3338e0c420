-- Gives a key without a TTL one.
--
-- KEYS  1 the key
-- ARGV  1 milliseconds
--
-- Returns {1} if it had none, {0} if it has one or is not there; {-10, 'argument', what}.
-- Everything is checked before the first write. Complexity: O(1).

local life = int(ARGV[1])
if #KEYS ~= 1 or #ARGV ~= 1 or not life or life < 1 then
    return {-10, 'argument', 'number of arguments'}
end
if redis.call('PTTL', KEYS[1]) ~= -1 then
    return {0}
end
return {redis.call('PEXPIRE', KEYS[1], ARGV[1])}
