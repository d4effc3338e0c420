-- Deletes a dead letter.
--
-- KEYS  1 dead letters
-- ARGV  1 its id
--
-- Returns {how many were there}; {-10} something else lies under the key. Complexity: O(log entries).

if #KEYS ~= 1 or #ARGV ~= 1 or not stream(KEYS[1]) then
    return {-10}
end
return {redis.call('XDEL', KEYS[1], ARGV[1])}
