-- Takes entries that have landed off the stream: acknowledged and deleted in one step.
--
-- KEYS  1 stream
-- ARGV  1 group    then the entries' ids
--
-- Returns {0, how many were there}; {-10} something else lies under the key. It may be repeated.
-- Complexity: O(entries * log pending).

if #KEYS ~= 1 or #ARGV < 2 or not stream(KEYS[1]) then
    return {-10}
end
redis.pcall('XACK', KEYS[1], unpack(ARGV)) -- the group may have gone with the stream; then nothing is to be acknowledged
return {0, redis.call('XDEL', KEYS[1], unpack(ARGV, 2))}
