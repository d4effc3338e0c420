-- Reads what an order holds.
--
-- KEYS  1 hold    2 deadlines
-- ARGV  1 order
--
-- Returns {0, what it is for, its request, nth, at, deadline, units confirmed, units released, trace context or empty}, texts.
-- {-1} no such hold; a deadline that outlived it is taken off. {-10, 'argument' or 'stored', what}.
-- Complexity: O(1), O(log holds) without the hold.

if #KEYS ~= 2 or #ARGV ~= 1 or ARGV[1] == '' then
    return {-10, 'argument', 'number of arguments'}
end
local hold = redis.pcall('HMGET', KEYS[1], 'what', 'request', 'nth', 'at', 'deadline', 'confirmed', 'released', 'trace')
if broken(hold) then
    return {-10, 'stored', 'hold'}
end
if not hold[1] then
    if broken(redis.pcall('ZREM', KEYS[2], ARGV[1])) then
        return {-10, 'stored', 'deadlines'}
    end
    return {-1}
end
if not hold[2] then
    return {-10, 'stored', 'hold'}
end
for i = 3, 7 do
    if not int(hold[i]) then
        return {-10, 'stored', 'hold'}
    end
end
return {0, hold[1], hold[2], hold[3], hold[4], hold[5], hold[6], hold[7], hold[8] or ''}
