-- Adds units to a counter or takes some off, for good: restock, refund, withdrawal.
--
-- KEYS  1 switch    then the shards of the counter
-- ARGV  1 restock, withdraw, or restore for a counter that has gone    2 units    3 operation id    4 operator
--       5 channel to tell, and 6 the item, that there are units again
--       7 how all must be, empty: no matter how. Steps, units warmed and units of all segments that the switch knows, 1 or 0
--       for the counter being there; or - for no switch
--
-- Returns {1, left}: done now, or by an earlier call with this operation id. {-1} no counter or no switch.
-- {-2, left} not enough to withdraw. {-3, left} nothing to restore. {-5} the operation id belongs to something else;
-- {-5, 1} it is not as it must be. {-10, 'argument' or 'stored', what}. Everything is checked before the first write.
-- Complexity: O(shards), and O(fields of the switch) with ARGV 7.

local action, units, shards = ARGV[1], int(ARGV[2]), #KEYS - 1
if shards < 1 or #ARGV ~= 7 or action ~= 'restock' and action ~= 'withdraw' and action ~= 'restore' then
    return {-10, 'argument', 'action'}
end
if not units or units < 1 and action ~= 'restore' then
    return {-10, 'argument', 'units'}
end
if ARGV[3] == '' then
    return {-10, 'argument', 'operation id'}
end
local left = counted(2, shards)
if left == false then
    return {-10, 'stored', 'counter'}
end
local op = 'op:' .. ARGV[3]
local field = action == 'restock' and 'restocked' or 'withdrawn'
local switch = redis.pcall('HMGET', KEYS[1], 'state', field, 'returns', 'end', op, 'warmed', 'whole')
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
if not switch[1] then
    return {-1}
end
local sum, returns, ends = int(switch[2]), int(switch[3]), int(switch[4])
if not sum or not returns or not ends then
    return {-10, 'stored', 'switch'}
end
local done = action .. ' ' .. ARGV[2]
if switch[5] then
    if string.match(switch[5], '^%l+ %d+') ~= done then
        return {-5}
    end
    return {1, left and digits(left) or '0'}
end
if ARGV[7] ~= '' then
    local steps = 0
    for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
        if string.sub(name, 1, 3) == 'op:' then
            steps = steps + 1
        end
    end
    if ARGV[7] ~= digits(steps) .. ' ' .. (switch[6] or '') .. ' ' .. (switch[7] or '0') .. (left and ' 1' or ' 0') then
        return {-5, 1}
    end
end
if action == 'restore' and left then
    return {-3, digits(left)}
end
if action ~= 'restore' and not left then
    return {-1}
end
if action == 'withdraw' and left < units then
    return {-2, digits(left)}
end
if sum + units > MAX or (left or 0) + units > MAX then
    return {-10, 'argument', 'units'}
end
local now = clock()
if action == 'restore' and ends + HOUR <= now then
    return {-1}
end

done = done .. ' ' .. digits(now) .. ' ' .. ARGV[4]
if action == 'restore' then
    redis.call('HSET', KEYS[1], 'returns', digits(returns + 1), op, done)
    make(2, shards, units)
    for s = 2, #KEYS do
        redis.call('PEXPIREAT', KEYS[s], digits(ends + HOUR))
    end
    left = 0
else
    redis.call('HSET', KEYS[1], field, digits(sum + units), 'returns', digits(returns + 1), op, done)
    if action == 'withdraw' then
        take(2, shards, 0, units)
        return {1, digits(left - units)}
    end
    give(2, shards, 0, units)
end
if left == 0 then
    tell(ARGV[5], ARGV[6])
end
return {1, digits(left + units)}
