-- Reads what is left. For people to look at: only a deduct decides.
--
-- KEYS  1 counter
-- ARGV  none
--
-- Returns {0, units} or {-1} or {-10, 'stored', what}. It writes nothing. Complexity: O(1).

local left = redis.pcall('GET', KEYS[1])
if broken(left) or left and not int(left) then
    return {-10, 'stored', 'counter'}
end
if not left then
    return {-1}
end
return {0, int(left)}
