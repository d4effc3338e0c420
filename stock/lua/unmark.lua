-- Takes an order's entry off a limit, if it is still what it was.
--
-- KEYS  1 marker
-- ARGV  1 order    2 value that the entry had
--
-- Returns {1} if it was taken off, {0} if it is not there or another one; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' then
    return {-10, 'argument', 'number of arguments'}
end
local entry = redis.pcall('HGET', KEYS[1], ARGV[1])
if broken(entry) then
    return {-10, 'stored', 'marker'}
end
if entry ~= ARGV[2] then
    return {0}
end
redis.call('HDEL', KEYS[1], ARGV[1])
return {1}
