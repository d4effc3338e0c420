-- Appends a line to the stream when all lines of its order, which lie in several slots, are in. Once.
--
-- KEYS  1 hold    2 stream
-- ARGV  1 order    2 item    3 variant    4 activity    5 user    6 units    7 milliseconds that the stream lives on, at least
--
-- Returns {1} if it is in the stream, {0} if the hold has ended or gone; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local life = int(ARGV[7])
if #KEYS ~= 2 or #ARGV ~= 7 or not life or not int(ARGV[6]) then
    return {-10, 'argument', 'number of arguments'}
end
local hold = redis.pcall('HMGET', KEYS[1], 'request', 'nth', 'at', 'trace', 'confirmed', 'released', 'appended')
if broken(hold) then
    return {-10, 'stored', 'hold'}
end
if not hold[1] or not int(hold[5]) or not int(hold[6]) or int(hold[5]) + int(hold[6]) == int(ARGV[6]) then
    return {0}
end
if hold[7] then
    return {1}
end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' and kind ~= 'stream' or not hold[2] or not hold[3] then
    return {-10, 'stored', 'stream'}
end
local entry = {'order', ARGV[1], 'request', hold[1], 'item', ARGV[2], 'variant', ARGV[3],
    'activity', ARGV[4], 'user', ARGV[5], 'units', ARGV[6], 'nth', hold[2], 'at', hold[3]}
if hold[4] then
    entry[19], entry[20] = 'trace', hold[4]
end
redis.call('HSET', KEYS[1], 'appended', '1')
redis.call('XADD', KEYS[2], '*', unpack(entry))
if redis.call('PTTL', KEYS[2]) < life then
    redis.call('PEXPIRE', KEYS[2], digits(life + DAY))
end
return {1}
