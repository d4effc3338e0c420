-- Takes a lock away from whoever holds it and raises its fence, for an operator.
--
-- KEYS   1 lock key, 2 its fence counter
-- ARGV   1 token that is to go, 2 TTL of the counter in ms, 3 PUBLISH or SPUBLISH, 4 message, 5 channel
--
-- Returns {1, number}   the token is gone; number is above that of its holder
--         {0}           the key is missing; nothing was written
--         {-1}          the key holds another token by now, or something of it is not ours; nothing was written
--
-- The number is made as in acquire.lua. Sent twice, the second one finds nothing. Arguments and stored values are
-- checked before the first write. O(1 + listeners).

local fence_ttl = tonumber(ARGV[2])
if #KEYS ~= 2 or #ARGV ~= 5 or ARGV[1] == '' or not fence_ttl or fence_ttl < 1 then
    return redis.error_reply('ERR lock: bad arguments to force')
end

local stored = redis.call('MGET', KEYS[1], KEYS[2])
if not stored[1] then
    return {0}
elseif stored[1] ~= ARGV[1] then
    return {-1}
end
local last = 0
if stored[2] then
    last = stored[2]:match('^%d+$') and tonumber(stored[2])
    if not last or last > 9007199254740991 then
        return {-1}
    end
elseif redis.call('EXISTS', KEYS[2]) > 0 then
    return {-1}
end

local now = redis.call('TIME')
local text = string.format('%.0f', math.max(last + 1, now[1] * 1000000 + now[2]))
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], text, 'PX', ARGV[2])
redis.pcall(ARGV[3], ARGV[5], ARGV[4])
return {1, text}
