-- Reads a counter and its whole switch at one instant, for comparing them with SQL.
--
-- KEYS  1 switch    2 counter
-- ARGV  none
--
-- Returns {0, server's time in Unix milliseconds, left or -1 if the counter is missing, field, value, ...of the switch};
-- {-1} if there is no switch; {-10, 'stored', what}. It writes nothing. Complexity: O(fields of the switch).

if #KEYS ~= 2 then
    return {-10, 'argument', 'number of keys'}
end
local switch = redis.pcall('HGETALL', KEYS[1])
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
local left = redis.pcall('GET', KEYS[2])
if broken(left) or left and not int(left) then
    return {-10, 'stored', 'counter'}
end
local reply = {0, digits(clock()), left or '-1'}
local open = false
for i = 1, #switch do
    reply[#reply + 1] = switch[i]
    open = open or i % 2 == 1 and switch[i] == 'state'
end
return open and reply or {-1}
