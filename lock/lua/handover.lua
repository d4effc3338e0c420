-- Passes a lock from one token to the next without letting go of it.
--
-- KEYS   1 lock key, 2 its fence counter
-- ARGV   1 old token, 2 new token, 3 TTL in ms, 4 TTL of the counter in ms
--
-- Returns {1, number}   the key holds the new token, for TTL ms from now
--         {0}           the key is missing; nothing was written
--         {-1}          the key holds neither token, or its counter is not ours; nothing was written
--
-- The number is made as in acquire.lua. A repeat keeps the number it has. Arguments and both stored values are checked
-- before the first write. O(1).

local ttl, fence_ttl = tonumber(ARGV[3]), tonumber(ARGV[4])
if #KEYS ~= 2 or not ARGV[2] or ARGV[1] == '' or ARGV[2] == '' or ARGV[1] == ARGV[2]
    or not ttl or ttl < 1 or not fence_ttl or fence_ttl < 1 then
    return redis.error_reply('ERR lock: bad arguments to hand over')
end

local stored = redis.call('MGET', KEYS[1], KEYS[2])
if not stored[1] then
    return {0}
elseif stored[1] ~= ARGV[1] and stored[1] ~= ARGV[2] then
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

if stored[1] == ARGV[2] and last > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return {1, stored[2]}
end
local now = redis.call('TIME')
local text = string.format('%.0f', math.max(last + 1, now[1] * 1000000 + now[2]))
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
return {1, text}
