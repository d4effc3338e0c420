-- In front of every script of this folder. It touches no key.

local DAY = 86400000

-- clock returns the server's time in Unix milliseconds.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- broken tells whether a reply of redis.pcall is an error.
local function broken(reply)
    return type(reply) == 'table' and reply.err ~= nil
end

-- keep pushes the life of a key forward to at least eight days, if it is there and has less than seven.
local function keep(key)
    local left = redis.call('PTTL', key)
    if left ~= -2 and left < 7 * DAY then
        redis.call('PEXPIRE', key, string.format('%.0f', 8 * DAY))
    end
end

-- stream tells whether a stream, or nothing, lies under the key.
local function stream(key)
    local kind = redis.call('TYPE', key).ok
    return kind == 'none' or kind == 'stream'
end

-- tries returns how often an entry was tried, or nil where the group does not have it.
local function tries(key, group, id)
    local p = redis.pcall('XPENDING', key, group, id, id, '1')
    if broken(p) or not p[1] then
        return nil
    end
    return p[1][4]
end
