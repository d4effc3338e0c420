-- Removes a counter that belongs to no sale.
--
-- KEYS  1 switch    2 counter
-- ARGV  none
--
-- Returns {1} if it was removed, {0} if there is none or a sale has it; {-10, 'argument', what}.
-- Everything is checked before the first write. Complexity: O(1).

if #KEYS ~= 2 then
    return {-10, 'argument', 'number of keys'}
end
local state = redis.pcall('HGET', KEYS[1], 'state')
if broken(state) or state then
    return {0}
end
return {redis.call('DEL', KEYS[2])}
