-- Reads what an order holds, so that whoever ends it knows the other keys.
--
-- KEYS  1 hold
-- ARGV  none
--
-- Returns {0, what it is for, its request} or {-1} or {-10, 'stored', what}. It writes nothing. Complexity: O(1).

local hold = redis.pcall('HMGET', KEYS[1], 'what', 'request')
if broken(hold) then
    return {-10, 'stored', 'hold'}
end
if not hold[1] then
    return {-1}
end
if not hold[2] then
    return {-10, 'stored', 'hold'}
end
return {0, hold[1], hold[2]}
