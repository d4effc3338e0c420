-- Between common.lua and the scripts that count: a counter is the field remain of one hash, or of several shards. They
-- share a slot, so every script sees all of them and the total is exact.

-- counted returns the units of all shards, nil if one is missing, false if a value cannot be read.
local function counted(first, shards)
    local sum = 0
    for s = first, first + shards - 1 do
        local units = redis.pcall('HGET', KEYS[s], 'remain')
        if not units then
            return nil
        end
        units = int(units)
        if not units then
            return false
        end
        sum = sum + units
    end
    if sum > MAX then
        return false
    end
    return sum
end

-- take takes units off, first from the user's own shard; the caller has seen that they are there.
local function take(first, shards, home, units)
    for i = 0, shards - 1 do
        local s = first + (home + i) % shards
        local n = math.min(units, int(redis.call('HGET', KEYS[s], 'remain')))
        if n > 0 then
            redis.call('HINCRBY', KEYS[s], 'remain', '-' .. digits(n))
        end
        units = units - n
        if units == 0 then
            return
        end
    end
end

-- give puts units back, into the user's own shard.
local function give(first, shards, home, units)
    redis.call('HINCRBY', KEYS[first + home % shards], 'remain', digits(units))
end

-- make makes a counter that is not there, its units spread over the shards, the remainder over the first ones.
local function make(first, shards, units)
    local share = math.floor(units / shards)
    for i = 0, shards - 1 do
        redis.call('HSET', KEYS[first + i], 'remain', digits(i < units - share * shards and share + 1 or share))
    end
end
