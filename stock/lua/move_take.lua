-- First step of a transfer between two segments: takes units off one. Their way is written down, so that anybody can
-- finish it.
--
-- KEYS  1 counter    2 switch    3 the transfer    4 open transfers
-- ARGV  1 id of the transfer    2 most units to take    3 item    4 segment to give them to
--
-- Returns {1, units, segment, when the transfer may be forgotten}: taken now, or by an earlier call with this id. {0} nothing
-- to take. {-1} no counter or no switch. {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(log open transfers).

local most = int(ARGV[2])
if #KEYS ~= 4 or #ARGV ~= 4 or ARGV[1] == '' or not most or most < 1 then
    return {-10, 'argument', 'number of arguments'}
end
local move = redis.pcall('HMGET', KEYS[3], 'units', 'to', 'until')
if broken(move) then
    return {-10, 'stored', 'transfer'}
end
if move[1] then
    return {1, move[1], move[2], move[3]}
end
local left = redis.pcall('GET', KEYS[1])
if broken(left) or left and not int(left) then
    return {-10, 'stored', 'counter'}
end
local switch = redis.pcall('HMGET', KEYS[2], 'moving', 'end')
if broken(switch) or switch[1] and not (int(switch[1]) and int(switch[2])) then
    return {-10, 'stored', 'switch'}
end
local kind = redis.call('TYPE', KEYS[4]).ok
if kind ~= 'none' and kind ~= 'zset' then
    return {-10, 'stored', 'open transfers'}
end
if not left or not switch[1] then
    return {-1}
end
local units = math.min(most, int(left))
if units == 0 then
    return {0}
end

local now = clock()
local expires = math.max(int(switch[2]), now) + DAY
redis.call('DECRBY', KEYS[1], digits(units))
redis.call('HSET', KEYS[2], 'moving', digits(int(switch[1]) + units))
redis.call('HSET', KEYS[3], 'item', ARGV[3], 'to', ARGV[4], 'units', digits(units), 'until', digits(expires), 'state', 'taken')
redis.call('PEXPIREAT', KEYS[3], digits(expires))
redis.call('ZADD', KEYS[4], digits(now), ARGV[1])
if redis.call('PTTL', KEYS[4]) < expires - now then
    redis.call('PEXPIREAT', KEYS[4], digits(expires))
end
return {1, digits(units), ARGV[4], digits(expires)}
