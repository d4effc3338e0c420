-- Between common.lua and the scripts that count: a counter is a string. It has one key, so shards is always 1; see
-- counter_hash.lua for the other kind.

-- counted returns the units of a counter, nil if it is missing, false if its value cannot be read.
local function counted(first, shards)
    local units = redis.pcall('GET', KEYS[first])
    if not units then
        return nil
    end
    return int(units) or false
end

-- take takes units off; the caller has seen that they are there.
local function take(first, shards, home, units)
    redis.call('DECRBY', KEYS[first], digits(units))
end

-- give puts units back.
local function give(first, shards, home, units)
    redis.call('INCRBY', KEYS[first], digits(units))
end

-- make makes a counter that is not there.
local function make(first, shards, units)
    redis.call('SET', KEYS[first], digits(units))
end
