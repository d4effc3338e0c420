-- Last step of a transfer: the first segment learns that the other one has its units.
--
-- KEYS  1 switch    2 the transfer    3 open transfers
-- ARGV  1 id of the transfer
--
-- Returns {1}; {-10, 'argument' or 'stored', what}. A day later the transfer is forgotten.
-- Everything is checked before the first write. Complexity: O(log open transfers).

if #KEYS ~= 3 or #ARGV ~= 1 or ARGV[1] == '' then
    return {-10, 'argument', 'number of arguments'}
end
local move = redis.pcall('HMGET', KEYS[2], 'units', 'state')
if broken(move) or move[1] and not int(move[1]) then
    return {-10, 'stored', 'transfer'}
end
local moving = redis.pcall('HGET', KEYS[1], 'moving')
if broken(moving) or moving and not int(moving) then
    return {-10, 'stored', 'switch'}
end
local kind = redis.call('TYPE', KEYS[3]).ok
if kind ~= 'none' and kind ~= 'zset' then
    return {-10, 'stored', 'open transfers'}
end
if move[2] == 'taken' then
    if moving then
        redis.call('HSET', KEYS[1], 'moving', digits(math.max(int(moving) - int(move[1]), 0)))
    end
    redis.call('HSET', KEYS[2], 'state', 'done')
    redis.call('PEXPIRE', KEYS[2], digits(DAY))
end
redis.call('ZREM', KEYS[3], ARGV[1])
return {1}
