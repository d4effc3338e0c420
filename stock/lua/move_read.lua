-- Reads a transfer.
--
-- KEYS  1 the transfer
-- ARGV  none
--
-- Returns {0, item, segment to give to, units, when it may be forgotten, state}, texts; {-1} no such transfer;
-- {-10, 'stored', what}. It writes nothing. Complexity: O(1).

local move = redis.pcall('HMGET', KEYS[1], 'item', 'to', 'units', 'until', 'state')
if broken(move) then
    return {-10, 'stored', 'transfer'}
end
if not move[1] then
    return {-1}
end
if not int(move[2]) or not int(move[3]) or not int(move[4]) or not move[5] then
    return {-10, 'stored', 'transfer'}
end
return {0, move[1], move[2], move[3], move[4], move[5]}
