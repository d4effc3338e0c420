-- Hands out entries of a stream: the consumer's own that it has not finished, those of dead consumers, new ones.
--
-- KEYS  1 stream    2 its dead letters
-- ARGV  1 group    2 consumer    3 most to hand out    4 id behind which its own unfinished ones are read, '': none are
--       5 milliseconds after which an entry is taken from another consumer, 0: none is taken    6 cursor of that search
--       7 '1': new ones too
--
-- Returns {0, entries in the stream, age of the oldest in ms, next cursor, id behind which more of its own may lie or '', entry...};
-- an entry is {id, 'own', 'claimed' or 'new', tries, field, value...}. {-10} something else lies under a key. Reading its own and
-- sending it again count no try.
--
-- The group is made when it is not there, at the beginning: whatever is in the stream has not landed. The stream itself is
-- never made. Entries that were deleted are acknowledged. The life of both streams is pushed forward while they hold
-- entries. Consumers that have nothing and were not seen for ten times as long as ARGV[5] are removed.
-- Complexity: O(entries handed out * log pending).

if #KEYS ~= 2 or #ARGV ~= 7 or not stream(KEYS[1]) or not stream(KEYS[2]) then
    return {-10}
end
local group, consumer, most, wait = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
local now = clock()
if redis.call('XLEN', KEYS[2]) > 0 then
    keep(KEYS[2])
end
local length = redis.call('XLEN', KEYS[1])
local reply = {0, length, 0, '0-0', ''}
if redis.call('EXISTS', KEYS[1]) == 0 then
    return reply
end
if length > 0 then
    keep(KEYS[1])
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', '1')
    reply[3] = math.max(0, now - tonumber(string.match(oldest[1][1], '^(%d+)')))
end

local function read(from, count)
    return redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', tostring(count), 'STREAMS', KEYS[1], from)
end

local function add(id, fields, kind, tried)
    if not fields or #fields == 0 then
        redis.call('XACK', KEYS[1], group, id)
        return
    end
    local entry = {id, kind, tried}
    for i = 1, #fields do
        entry[#entry + 1] = fields[i]
    end
    reply[#reply + 1] = entry
    most = most - 1
end

if ARGV[4] ~= '' then -- by XPENDING: XREADGROUP would count a try each time that they are read
    local own = redis.pcall('XPENDING', KEYS[1], group, '(' .. ARGV[4], '+', tostring(most), consumer)
    if not broken(own) then
        if #own == most then
            reply[5] = own[#own][1]
        end
        for _, p in ipairs(own) do
            local e = redis.call('XRANGE', KEYS[1], p[1], p[1])[1]
            add(p[1], e and e[2], 'own', p[4])
        end
    end
end

if wait > 0 and most > 0 then
    local claimed = redis.pcall('XAUTOCLAIM', KEYS[1], group, consumer, ARGV[5], ARGV[6], 'COUNT', tostring(most), 'JUSTID')
    if not broken(claimed) then
        reply[4] = claimed[1]
        for _, id in ipairs(claimed[2]) do
            if id then
                local e = redis.call('XRANGE', KEYS[1], id, id)
                add(id, e[1] and e[1][2], 'claimed', tries(KEYS[1], group, id) or 1)
            end
        end
        local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], group)
        if not broken(consumers) then
            for _, c in ipairs(consumers) do
                local of = {}
                for i = 1, #c, 2 do
                    of[c[i]] = c[i + 1]
                end
                if of.name ~= consumer and of.pending == 0 and of.idle > 10 * wait then
                    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], group, of.name)
                end
            end
        end
    end
end

if ARGV[7] == '1' and most > 0 and length > 0 then
    local new = read('>', most)
    if broken(new) and string.find(new.err, 'NOGROUP', 1, true) then
        redis.call('XGROUP', 'CREATE', KEYS[1], group, '0')
        new = read('>', most)
    end
    if broken(new) then
        return {-10}
    end
    if new and new[1] then
        for _, e in ipairs(new[1][2]) do
            add(e[1], e[2], 'new', 1)
        end
    end
end
return reply
