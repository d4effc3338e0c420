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
local hold = redis.pcall('HMGET', KEYS[1], 'taken', 'what', 'request', 'confirmed', 'released', 'trace')
if broken(hold) then
    return {-10, 'stored', 'hold'}
end
if not hold[1] then
    if redis.call('EXISTS', KEYS[1]) == 1 then
        return {-10, 'stored', 'hold'}
    end
    if broken(redis.pcall('ZREM', KEYS[2], ARGV[1])) then
        return {-10, 'stored', 'deadlines'}
    end
    return {-1}
end
local nth, at, deadline = string.match(hold[1], HOLD)
local confirmed, released = hold[4] or '0', hold[5] or '0'
if not hold[2] or not hold[3] or not int(nth) or not int(at) or not int(deadline) or not int(confirmed) or not int(released) then
    return {-10, 'stored', 'hold'}
end
return {0, hold[2], hold[3], nth, at, deadline, confirmed, released, hold[6] or ''}
