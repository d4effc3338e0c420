-- Lists what is due in one place: the holds past their deadline, or the transfers that have been open for long.
--
-- KEYS  1 deadlines, or open transfers
-- ARGV  1 most to list    2 milliseconds that they must be past    3 how many of those due longest to leave out
--
-- Returns {0, id...}, those due longest first; {-10, 'argument' or 'stored', what}. It writes nothing.
-- Complexity: O(log entries + most + left out).

local most, past, skip = int(ARGV[1]), int(ARGV[2]), int(ARGV[3])
if #KEYS ~= 1 or #ARGV ~= 3 or not most or not past or not skip then
    return {-10, 'argument', 'number of arguments'}
end
local ids = redis.pcall('ZRANGEBYSCORE', KEYS[1], '-inf', digits(clock() - past), 'LIMIT', ARGV[3], ARGV[1])
if broken(ids) then
    return {-10, 'stored', 'deadlines'}
end
return {0, unpack(ids)}
