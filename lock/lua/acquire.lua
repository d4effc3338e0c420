-- Takes the keys of one lease, all of them or none; with a token that has them already, takes them again.
--
-- KEYS   1..n     lock keys
--        n+1..2n  their fence counters, in the same order
-- ARGV   1 token, 2 TTL in ms, 3 TTL of the counters in ms, 4 floor: the least number wanted
--
-- Returns {1, number}       every lock key holds the token, for TTL ms from now
--         {0, index, ms}    KEYS[index] holds another token, for that long; nothing was written
--         {-1}              something under KEYS is not ours: another type, a lock without TTL, a counter that is no
--                           whole number; nothing was written
--
-- The number is above every earlier one of these keys. The server's clock in microseconds is its lower bound, so that a
-- counter that expired or was evicted does not start again at 1; the counter covers a clock that steps back. A repeat
-- keeps the number it has.
--
-- Arguments and all stored values are checked before the first write. O(n).

local token, ttl, fence_ttl, floor = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if #KEYS == 0 or #KEYS % 2 == 1 or not token or token == '' or not floor
    or not ttl or ttl < 1 or not fence_ttl or fence_ttl < 1 then
    return redis.error_reply('ERR lock: bad arguments to acquire')
end

local n = #KEYS / 2
local stored = redis.call('MGET', unpack(KEYS))
local mine, last, missing = 0, 0, {}
for i = 1, 2 * n do
    local value = stored[i]
    if not value then
        if i > n or n > 1 then -- what lies under a single lock key, if anything, SET NX tells before all other writes
            missing[#missing + 1] = KEYS[i]
        end
    elseif i > n then
        local number = value:match('^%d+$') and tonumber(value)
        if not number or number > 9007199254740991 then
            return {-1}
        end
        last = math.max(last, number)
    elseif value == token then
        mine = mine + 1
    else
        local left = redis.call('PTTL', KEYS[i])
        if left < 0 then
            return {-1}
        end
        return {0, i, left}
    end
end
if #missing > 0 and redis.call('EXISTS', unpack(missing)) > 0 then
    return {-1} -- there, but no string
end

local number
if mine == n and last > 0 then
    number = math.max(last, floor)
else
    local now = redis.call('TIME')
    number = math.max(last + 1, now[1] * 1000000 + now[2], floor)
end
local text = string.format('%.0f', number)
for i = 1, n do
    if stored[i] then
        redis.call('PEXPIRE', KEYS[i], ARGV[2])
    elseif not redis.call('SET', KEYS[i], token, 'NX', 'PX', ARGV[2]) then
        return {-1}
    end
    if stored[n + i] ~= text then
        redis.call('SET', KEYS[n + i], text, 'PX', ARGV[3])
    end
end
return {1, text}
