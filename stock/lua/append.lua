-- Appends a line to the stream when all lines of its order, which lie in several slots, are in. Once.
--
-- KEYS  1 hold    2 stream
-- ARGV  1 order    2 milliseconds that the stream lives on, at least
--
-- Returns {1} if it is in the stream, {0} if the hold has ended or gone; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local life = int(ARGV[2])
if #KEYS ~= 2 or #ARGV ~= 2 or not life then
    return {-10, 'argument', 'number of arguments'}
end
local hold = redis.pcall('HMGET', KEYS[1], 'taken', 'trace', 'confirmed', 'released', 'appended', 'what', 'request')
if broken(hold) then
    return {-10, 'stored', 'hold'}
end
if not hold[1] then
    return {0}
end
local nth, at = string.match(hold[1], HOLD)
local what, request = hold[6], hold[7]
local units, confirmed, released = int(what and string.match(what, ':(%d+)$')), int(hold[3] or '0'), int(hold[4] or '0')
if not nth or not request or not units or not confirmed or not released then
    return {-10, 'stored', 'hold'}
end
if confirmed + released == units then
    return {0}
end
if hold[5] then
    return {1}
end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' and kind ~= 'stream' then
    return {-10, 'stored', 'stream'}
end
local entry = {'order', ARGV[1], 'request', request, 'what', what, 'taken', nth .. ' ' .. at}
if hold[2] then
    entry[9], entry[10] = 'trace', hold[2]
end
redis.call('HSET', KEYS[1], 'appended', '1')
redis.call('XADD', KEYS[2], '*', unpack(entry))
if redis.call('PTTL', KEYS[2]) < life then
    redis.call('PEXPIRE', KEYS[2], digits(life + DAY))
end
return {1}
