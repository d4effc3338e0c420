-- Reads a counter and its switch. For people to look at, and to see that all segments are empty; only a deduct sells.
--
-- KEYS  1 switch    then the shards of the counter
-- ARGV  none
--
-- Returns {0, left or -1 if the counter is missing, layout, state, moving, returns, warmed, restocked, withdrawn, withheld}, texts;
-- {-1, left or -1, layout or empty} if there is no switch, whatever lies under the counter; {-10, 'stored', what}. It writes nothing. Complexity: O(shards).

if #KEYS < 2 then
    return {-10, 'argument', 'number of keys'}
end
local left = counted(2, #KEYS - 1)
local switch = redis.pcall('HMGET', KEYS[1], 'layout', 'state', 'moving', 'returns', 'warmed', 'restocked', 'withdrawn', 'withheld')
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
if not switch[2] then
    return {-1, left and digits(left) or '-1', switch[1] or ''}
end
if left == false then
    return {-10, 'stored', 'counter'}
end
left = left and digits(left) or '-1'
for i = 3, 8 do
    if not int(switch[i]) then
        return {-10, 'stored', 'switch'}
    end
end
return {0, left, switch[1] or '', switch[2], switch[3], switch[4], switch[5], switch[6], switch[7], switch[8]}
