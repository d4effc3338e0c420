-- Puts off when a hold is looked at again. The hold itself keeps its deadline.
--
-- KEYS  1 deadlines
-- ARGV  1 order    2 milliseconds from now
--
-- Returns {1}, or {0} if the order has no deadline: it has ended; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(log holds).

local wait = int(ARGV[2])
if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' or not wait then
    return {-10, 'argument', 'number of arguments'}
end
local due = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
if broken(due) then
    return {-10, 'stored', 'deadlines'}
end
if not due then
    return {0}
end
redis.call('ZADD', KEYS[1], 'XX', digits(clock() + wait), ARGV[1])
return {1}
