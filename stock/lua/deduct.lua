-- Decides an order of one or more lines, all or nothing, and takes its units.
--
-- KEYS  for each line: switch, request, with limits: marker, with a hold: hold, then the shards of its counter
--       with two lines or more: the whole order's request
--       with a hold: deadlines
--       with a stream: stream
-- ARGV  1 lines    2 order    3 request    4 user    5 activity    6 field of the activity in the switch
--       7 milliseconds that a request record lives, at least    8 milliseconds of the hold, 0: none
--       9 most entries of the stream, empty: no stream    10 trace context, may be empty
--       11 what the whole order is for (two lines or more)    12 try, above 0 for a line of an order in several slots
--       13 limits: 1 or 0
--       then for each line: its number, empty for the only one; item, variant, units, what it is for, scope of the
--       limit, layout of the item, shards of its counter, the user's own shard
--
-- Returns an array; its first element is the code.
--   {left, order, then nth and left of each line}          taken; left is the least of the lines'
--   {-4, order, state, then nth and left of each line}      request done before; state: held, confirmed or released
--   {-1, line} {-2, line, left} {-3, line, used} {-5, line} {-6, line} {-7, line, state}
--   {-8, line, ms until the start} {-9, line} {-11}         refused; lines count from 1
--   {-10, 'argument' or 'stored', what}                     wrong; nothing written
--   {-20, line, scope or empty, layout}                     the item lies or is limited otherwise: ask again with this
--
-- Everything is checked before the first write: the arguments, the type and the value behind every key.
-- Complexity: O(lines + orders that the user has under the limit), and O(log holds) with a hold.

local lines, keep, hold, try = int(ARGV[1]), int(ARGV[7]), int(ARGV[8]), int(ARGV[12])
local order, request, user, activity, trace = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[10]
local stream, backlog, limits = ARGV[9] ~= '', int(ARGV[9]), ARGV[13] == '1'
local ARGS, PER_LINE = 13, 9

if not lines or lines < 1 or #ARGV ~= ARGS + lines * PER_LINE then
    return {-10, 'argument', 'number of arguments'}
end
if not keep or keep < 1 then
    return {-10, 'argument', 'life of the request record'}
end
if not hold or not try or stream and not backlog then
    return {-10, 'argument', 'number'}
end
if order == '' or request == '' then
    return {-10, 'argument', 'id'}
end

-- Read everything, and look at each value before judging any of it.

local list, k = {}, 0
for i = 1, lines do
    local a = ARGS + (i - 1) * PER_LINE
    local l = {
        item = ARGV[a + 2], variant = ARGV[a + 3], units = int(ARGV[a + 4]), what = ARGV[a + 5],
        shards = int(ARGV[a + 8]), home = int(ARGV[a + 9]), order = order, id = request,
    }
    if ARGV[a + 1] ~= '' then
        l.order, l.id = order .. '/' .. ARGV[a + 1], request .. '/' .. ARGV[a + 1]
    end
    if not l.units or l.units < 1 then
        return {-10, 'argument', 'units'}
    end
    if not l.shards or l.shards < 1 or not l.home then
        return {-10, 'argument', 'shards'}
    end
    l.switch, l.request, k = k + 1, k + 2, k + 2
    if limits then
        k = k + 1
        l.marker = k
    end
    if hold > 0 then
        k = k + 1
        l.hold = k
    end
    l.counter, k = k + 1, k + l.shards
    if k > #KEYS then
        return {-10, 'argument', 'number of keys'}
    end

    local switch = redis.pcall('HMGET', KEYS[l.switch], 'state', 'layout', ARGV[6])
    if broken(switch) then
        return {-10, 'stored', 'switch'}
    end
    l.state = switch[1]
    if switch[2] and switch[2] ~= ARGV[a + 7] then
        return {-20, i, '', switch[2]}
    end
    if switch[3] then
        local starts, ends, limit, most, scope = string.match(switch[3], '^(%d+) (%d+) (%d+) (%d+) (%d) %d+$')
        l.starts, l.ends, l.limit, l.most = int(starts), int(ends), int(limit), int(most)
        if not l.state or not l.starts or not l.ends or not l.limit or not l.most then
            return {-10, 'stored', 'switch'}
        end
        if scope ~= ARGV[a + 6] then
            return {-20, i, scope, switch[2] or ARGV[a + 7]}
        end
    end

    l.left = counted(l.counter, l.shards)
    if l.left == false then
        return {-10, 'stored', 'counter'}
    end

    l.used, l.taken = 0, {}
    if limits then
        local marker = redis.pcall('HGETALL', KEYS[l.marker])
        if broken(marker) then
            return {-10, 'stored', 'marker'}
        end
        for m = 1, #marker, 2 do
            local units, nth = string.match(marker[m + 1], '^(%d+):?(%d*)$')
            units, nth = int(units), nth ~= '' and int(nth) or 1
            if not units or not nth then
                return {-10, 'stored', 'marker'}
            end
            l.used = l.used + units
            l.taken[nth] = true
            l.mine = l.mine or marker[m] == l.order
        end
    end

    local record = redis.pcall('HMGET', KEYS[l.request], 'what', 'order', 'state', 'nth', 'left', 'try')
    if broken(record) then
        return {-10, 'stored', 'request record'}
    end
    if record[3] == 'undone' then
        if not int(record[6]) then
            return {-10, 'stored', 'request record'}
        end
        l.undone = int(record[6])
    elseif record[1] or record[2] or record[3] then
        if not record[1] or not record[2] or not record[3] or record[4] and not (int(record[4]) and int(record[5])) then
            return {-10, 'stored', 'request record'}
        end
        l.record = record
    end

    if hold > 0 then
        local kind = redis.call('TYPE', KEYS[l.hold]).ok
        if kind ~= 'none' and kind ~= 'hash' then
            return {-10, 'stored', 'hold'}
        end
        l.held = kind == 'hash'
    end
    list[i] = l
end

local whole, deadlines, orders, first
if lines > 1 then
    k = k + 1
    whole = k
end
if hold > 0 then
    k = k + 1
    deadlines = k
end
if stream then
    k = k + 1
    orders = k
end
if #KEYS ~= k then
    return {-10, 'argument', 'number of keys'}
end
if whole then
    first = redis.pcall('HMGET', KEYS[whole], 'what', 'order', 'state')
    if broken(first) or first[1] and not (first[2] and first[3]) then
        return {-10, 'stored', 'request record'}
    end
else
    first = list[1].record or {}
end
if deadlines then
    local kind = redis.call('TYPE', KEYS[deadlines]).ok
    if kind ~= 'none' and kind ~= 'zset' then
        return {-10, 'stored', 'deadlines'}
    end
end
local entries
if orders then
    entries = redis.pcall('XLEN', KEYS[orders])
    if broken(entries) then
        return {-10, 'stored', 'stream'}
    end
end

-- The request has been seen before.

if first[1] then
    if first[1] ~= (whole and ARGV[11] or list[1].what) then
        return {-5, 0}
    end
    if first[3] == 'open' then
        return {-6, 0}
    end
    local state, reply = 'released', {-4, first[2], ''}
    for i = 1, lines do
        local r = list[i].record
        if not r or r[1] ~= list[i].what or not r[4] then
            return {-5, i}
        end
        if r[3] ~= 'released' then
            state = r[3]
        end
        reply[#reply + 1] = r[4]
        reply[#reply + 1] = r[5]
    end
    reply[3] = state
    return reply
end
for i = 1, lines do
    local l = list[i]
    if l.undone and l.undone >= try then
        return {-6, i}
    end
    if l.record or l.held or l.mine then
        return {-5, i}
    end
end

-- Judge. Lines may share a counter or a marker, so what earlier lines will take counts for the later ones.

local now = clock()
local wanted, used, nths = {}, {}, {}
for i = 1, lines do
    local l = list[i]
    if not l.starts then
        return {-1, i}
    end
    if l.state ~= 'open' then
        return {-7, i, l.state}
    end
    if now < l.starts then
        return {-8, i, l.starts - now}
    end
    if now >= l.ends then
        return {-9, i}
    end
    if not l.left then
        return {-1, i}
    end
    local counter = KEYS[l.counter]
    wanted[counter] = (wanted[counter] or 0) + l.units
    if l.left < wanted[counter] then
        return {-2, i, l.left}
    end
    l.nth = 1
    if limits then
        local marker = KEYS[l.marker]
        used[marker] = (used[marker] or l.used) + l.units
        if l.limit > 0 and used[marker] > l.limit then
            return {-3, i, l.used}
        end
        nths[marker] = nths[marker] or l.taken
        if l.limit ~= 1 then
            while nths[marker][l.nth] do
                l.nth = l.nth + 1
            end
            nths[marker][l.nth] = true
        end
    end
    if l.most > 0 and wanted[counter] > l.most then
        return {-3, i, l.used}
    end
end
if orders and entries + lines > backlog then
    return {-11}
end

-- Write. Nothing below can fail.

local life = digits(hold > 0 and math.max(keep, hold + 600000) or keep)
local least, reply, lasts = nil, {0, order}, 0
wanted = {}
for i = 1, lines do
    local l = list[i]
    local units, nth = digits(l.units), digits(l.nth)
    local counter = KEYS[l.counter]
    wanted[counter] = (wanted[counter] or 0) + l.units
    local left = l.left - wanted[counter]
    take(l.counter, l.shards, l.home, l.units)
    if limits then
        redis.call('HSET', KEYS[l.marker], l.order, l.limit == 1 and units or units .. ':' .. nth)
        redis.call('PEXPIREAT', KEYS[l.marker], digits(l.ends + DAY))
    end
    local record = {'what', l.what, 'order', l.order, 'state', 'held', 'nth', nth, 'left', digits(left)}
    if try > 0 then
        record[11], record[12] = 'try', ARGV[12]
    end
    if hold > 0 then
        local deadline = now + hold
        redis.call('HSET', KEYS[l.request], unpack(record))
        local held = {'what', l.what, 'request', l.id, 'nth', nth, 'confirmed', '0', 'released', '0',
            'at', digits(now), 'deadline', digits(deadline)}
        if trace ~= '' then
            held[15], held[16] = 'trace', trace
        end
        redis.call('HSET', KEYS[l.hold], unpack(held))
        redis.call('PEXPIREAT', KEYS[l.hold], digits(math.max(deadline, l.ends) + DAY))
        redis.call('ZADD', KEYS[deadlines], digits(deadline), l.order)
    else
        redis.call('HSET', KEYS[l.request], 'confirmed', '0', 'released', '0', unpack(record))
    end
    redis.call('PEXPIRE', KEYS[l.request], life)
    if stream then
        local entry = {'order', l.order, 'request', l.id, 'item', l.item, 'variant', l.variant,
            'activity', activity, 'user', user, 'units', units, 'nth', nth, 'at', digits(now)}
        if trace ~= '' then
            entry[19], entry[20] = 'trace', trace
        end
        redis.call('XADD', KEYS[orders], '*', unpack(entry))
    end
    least = math.min(least or left, left)
    lasts = math.max(lasts, l.ends)
    reply[#reply + 1] = nth
    reply[#reply + 1] = digits(left)
end
if whole then
    redis.call('HSET', KEYS[whole], 'what', ARGV[11], 'order', order, 'state', 'done')
    redis.call('PEXPIRE', KEYS[whole], life)
end
if deadlines and redis.call('PTTL', KEYS[deadlines]) < hold + DAY then
    redis.call('PEXPIRE', KEYS[deadlines], digits(hold + DAY))
end
if orders and redis.call('PTTL', KEYS[orders]) < lasts - now + 7 * DAY then
    redis.call('PEXPIRE', KEYS[orders], digits(lasts - now + 8 * DAY))
end
reply[1] = least
return reply
