-- Prolongs a lease whose keys are all still ours. It never creates a key.
--
-- KEYS   the lock keys
-- ARGV   1 token, 2 TTL in ms
--
-- Returns 1   every key holds the token, for TTL ms from now
--         0   a key is missing; nothing was written
--        -1   a key holds something else; nothing was written
--
-- Arguments and all stored values are checked before the first write. O(number of keys).

local ttl = tonumber(ARGV[2])
if #KEYS == 0 or not ARGV[1] or ARGV[1] == '' or not ttl or ttl < 1 then
    return redis.error_reply('ERR lock: bad arguments to renew')
end

local answer = 1
for _, value in ipairs(redis.call('MGET', unpack(KEYS))) do
    if value and value ~= ARGV[1] then
        return -1
    elseif not value then
        answer = 0
    end
end
if answer == 1 then
    for i = 1, #KEYS do
        redis.call('PEXPIRE', KEYS[i], ARGV[2])
    end
end
return answer
