-- Makes a segment again that has gone with its switch, after what the other segments say.
--
-- KEYS  1 switch    2 counter
-- ARGV  1 units    2 operation id    3 operator    4 state of the sale    5 layout of the item    6 end    7 units that this
--       segment was warmed up with    8 units that the whole item was    9 channel to tell, and 10 the item, that there are
--       units again    then names and values of the switch's other fields: activities, anew, paused
--
-- Returns {1, left}: done now, or by an earlier call with this operation id. {-1} the sale is over. {-3, left or 0} there is a
-- switch. {-4} there is a counter. {-5} the operation id belongs to something else. {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(fields).

local units, ends, warmed, whole = int(ARGV[1]), int(ARGV[6]), int(ARGV[7]), int(ARGV[8])
local states = {open = true, paused = true, frozen = true}
if #KEYS ~= 2 or #ARGV < 10 or #ARGV % 2 ~= 0 or not states[ARGV[4]] or not string.find(ARGV[5], '^%d+ %d+$') then
    return {-10, 'argument', 'number of arguments'}
end
if not units or not ends or not warmed or not whole then
    return {-10, 'argument', 'units'}
end
if ARGV[2] == '' then
    return {-10, 'argument', 'operation id'}
end
for i = 11, #ARGV, 2 do
    local activity = string.sub(ARGV[i], 1, 4) == 'act:' and string.find(ARGV[i + 1], '^%d+ %d+ %d+ %d+ %d %d+$')
    if not activity and not ((ARGV[i] == 'anew' or ARGV[i] == 'paused') and int(ARGV[i + 1])) then
        return {-10, 'argument', 'field'}
    end
end
local op, done = 'op:' .. ARGV[2], 'restore ' .. ARGV[1]
local left = counted(2, 1)
if left == false then
    return {-10, 'stored', 'counter'}
end
local switch = redis.pcall('HMGET', KEYS[1], 'state', op)
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
if switch[2] then
    if string.match(switch[2], '^%l+ %d+') ~= done then
        return {-5}
    end
    return {1, left and digits(left) or '0'}
end
if switch[1] then
    return {-3, left and digits(left) or '0'}
end
if left then
    return {-4}
end
local now = clock()
if ends + HOUR <= now then
    return {-1}
end

-- What every deduct reads comes first, as in warm.lua.
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'layout', ARGV[5])
for i = 11, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'warmed', ARGV[7], 'restocked', '0', 'withdrawn', '0', 'withheld', '0', 'moving', '0', 'returns', '1',
    'end', ARGV[6], 'whole', ARGV[8], op, done .. ' ' .. digits(now) .. ' ' .. ARGV[3])
make(2, 1, units)
redis.call('PEXPIREAT', KEYS[1], digits(ends + DAY))
redis.call('PEXPIREAT', KEYS[2], digits(ends + HOUR))
if units > 0 then
    tell(ARGV[9], ARGV[10])
end
return {1, digits(units)}
