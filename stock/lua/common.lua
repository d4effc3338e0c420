-- In front of every script of this folder. It touches no key.

local MAX = 9007199254740991 -- 2^53 - 1: above, a Lua number is no longer exact
local HOUR, DAY = 3600000, 86400000

-- int returns the number that v writes in plain digits, 0 to 2^53 - 1, or nil: no sign, no point, no exponent, no
-- leading zero.
local function int(v)
    if type(v) ~= 'string' or #v > 16 or not string.find(v, '^%d+$') or string.find(v, '^0%d') then
        return nil
    end
    local n = tonumber(v)
    if n > MAX then
        return nil
    end
    return n
end

-- digits writes a whole number without an exponent.
local function digits(n)
    return string.format('%.0f', n)
end

-- broken tells whether a reply of redis.pcall is an error: another type lies under the key.
local function broken(reply)
    return type(reply) == 'table' and reply.err ~= nil
end

-- clock returns the server's time in Unix milliseconds.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
