-- Decides an order of one or more lines, all or nothing, and takes its units.
--
-- KEYS  for each line: counter, switch, marker, request, and with a hold: hold
--       with two lines or more: the whole order's request
--       with a hold: deadlines
--       with a stream: stream
-- ARGV  1 lines    2 order    3 request    4 user    5 activity    6 field of the activity in the switch
--       7 milliseconds that a request record lives, at least    8 milliseconds of the hold, 0: none
--       9 stream: 1 or 0    10 trace context, may be empty    11 what the whole order is for (two lines or more)
--       then for each line: item, variant, units, what it is for, scope of the limit
--
-- Returns an array; its first element is the code.
--   {left, order, then nth and left of each line}         taken; left is the least of the lines'
--   {-4, order, state, then nth and left of each line}     request done before; state: held, confirmed or released
--   {-1, line} {-2, line, left} {-3, line, used} {-5, line} {-6, line} {-7, line, state}
--   {-8, line, ms until the start} {-9, line}              refused; lines count from 1
--   {-10, 'argument' or 'stored', what}                    wrong; nothing written
--   {-20, line, scope}                                     the sale's limit counts over another scope: ask with it
--
-- Everything is checked before the first write: the arguments, the type and the value behind every key.
-- Complexity: O(lines + orders that the user has under the limit), and O(log holds) with a hold.

local lines, keep, hold = int(ARGV[1]), int(ARGV[7]), int(ARGV[8])
local order, request, user, activity, trace = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[10]
local stream = ARGV[9] == '1'
local ARGS, PER_LINE = 11, 5

if not lines or lines < 1 or #ARGV ~= ARGS + lines * PER_LINE then
    return {-10, 'argument', 'number of arguments'}
end
if not keep or keep < 1 then
    return {-10, 'argument', 'life of the request record'}
end
if not hold then
    return {-10, 'argument', 'life of the hold'}
end
if order == '' or request == '' then
    return {-10, 'argument', 'id'}
end

local width = hold > 0 and 5 or 4
local last = lines * width
local whole, deadlines, orders
if lines > 1 then
    last = last + 1
    whole = last
end
if hold > 0 then
    last = last + 1
    deadlines = last
end
if stream then
    last = last + 1
    orders = last
end
if #KEYS ~= last then
    return {-10, 'argument', 'number of keys'}
end

-- Read everything, and look at each value before judging any of it.

local list = {}
for i = 1, lines do
    local k, a = (i - 1) * width, ARGS + (i - 1) * PER_LINE
    local l = {
        counter = k + 1, switch = k + 2, marker = k + 3, request = k + 4, hold = k + 5,
        item = ARGV[a + 1], variant = ARGV[a + 2], units = int(ARGV[a + 3]), what = ARGV[a + 4], scope = ARGV[a + 5],
        order = lines > 1 and order .. '/' .. i or order, id = lines > 1 and request .. '/' .. i or request,
    }
    if not l.units or l.units < 1 then
        return {-10, 'argument', 'units'}
    end

    local left = redis.pcall('GET', KEYS[l.counter])
    if broken(left) or left and not int(left) then
        return {-10, 'stored', 'counter'}
    end
    l.left = left and int(left)

    local switch = redis.pcall('HMGET', KEYS[l.switch], 'state', ARGV[6])
    if broken(switch) then
        return {-10, 'stored', 'switch'}
    end
    l.state = switch[1]
    if switch[2] then
        local starts, ends, limit, most, scope = string.match(switch[2], '^(%d+) (%d+) (%d+) (%d+) (%d) %d+$')
        l.starts, l.ends, l.limit, l.most = int(starts), int(ends), int(limit), int(most)
        if not l.state or not l.starts or not l.ends or not l.limit or not l.most then
            return {-10, 'stored', 'switch'}
        end
        if scope ~= l.scope then
            return {-20, i, scope}
        end
    end

    local marker = redis.pcall('HGETALL', KEYS[l.marker])
    if broken(marker) then
        return {-10, 'stored', 'marker'}
    end
    l.used, l.taken = 0, {}
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

    local record = redis.pcall('HMGET', KEYS[l.request], 'what', 'order', 'state', 'nth', 'left')
    if broken(record) then
        return {-10, 'stored', 'request record'}
    end
    if record[1] then
        if not record[2] or not record[3] or not int(record[4]) or not int(record[5]) then
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

local first
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
if orders then
    local kind = redis.call('TYPE', KEYS[orders]).ok
    if kind ~= 'none' and kind ~= 'stream' then
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
        if not r or r[1] ~= list[i].what then
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
    if list[i].record or list[i].held or list[i].mine then
        return {-5, i}
    end
end

-- Judge. Lines may share a counter or a marker, so what earlier lines will take counts for the later ones.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
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
    local counter, marker = KEYS[l.counter], KEYS[l.marker]
    wanted[counter] = (wanted[counter] or 0) + l.units
    if l.left < wanted[counter] then
        return {-2, i, l.left}
    end
    used[marker] = (used[marker] or l.used) + l.units
    if l.limit > 0 and used[marker] > l.limit or l.most > 0 and l.units > l.most then
        return {-3, i, l.used}
    end
    nths[marker] = nths[marker] or l.taken
    l.nth = 1
    if l.limit ~= 1 then
        while nths[marker][l.nth] do
            l.nth = l.nth + 1
        end
        nths[marker][l.nth] = true
    end
end

-- Write. Nothing below can fail.

local DAY = 86400000
local least, reply, lasts = nil, {0, order}, 0
for i = 1, lines do
    local l = list[i]
    local units, nth, ends = digits(l.units), digits(l.nth), digits(l.ends + DAY)
    local left = redis.call('DECRBY', KEYS[l.counter], units)
    redis.call('HSET', KEYS[l.marker], l.order, l.limit == 1 and units or units .. ':' .. nth)
    redis.call('PEXPIREAT', KEYS[l.marker], ends)
    if hold > 0 then
        local deadline = now + hold
        redis.call('HSET', KEYS[l.request], 'what', l.what, 'order', l.order, 'state', 'held', 'nth', nth, 'left', digits(left))
        redis.call('PEXPIRE', KEYS[l.request], digits(math.max(keep, hold + 600000)))
        redis.call('HSET', KEYS[l.hold], 'what', l.what, 'request', l.id, 'nth', nth, 'confirmed', '0', 'released', '0',
            'at', digits(now), 'deadline', digits(deadline))
        if trace ~= '' then
            redis.call('HSET', KEYS[l.hold], 'trace', trace)
        end
        redis.call('PEXPIREAT', KEYS[l.hold], digits(math.max(deadline, l.ends) + DAY))
        redis.call('ZADD', KEYS[deadlines], digits(deadline), l.order)
    else
        redis.call('HSET', KEYS[l.request], 'what', l.what, 'order', l.order, 'state', 'held', 'nth', nth, 'left', digits(left),
            'confirmed', '0', 'released', '0')
        redis.call('PEXPIRE', KEYS[l.request], digits(keep))
    end
    if stream then
        if trace ~= '' then
            redis.call('XADD', KEYS[orders], '*', 'order', l.order, 'request', l.id, 'item', l.item, 'variant', l.variant,
                'activity', activity, 'user', user, 'units', units, 'nth', nth, 'at', digits(now), 'trace', trace)
        else
            redis.call('XADD', KEYS[orders], '*', 'order', l.order, 'request', l.id, 'item', l.item, 'variant', l.variant,
                'activity', activity, 'user', user, 'units', units, 'nth', nth, 'at', digits(now))
        end
    end
    least = math.min(least or left, left)
    lasts = math.max(lasts, l.ends)
    reply[#reply + 1] = l.nth
    reply[#reply + 1] = left
end
if whole then
    redis.call('HSET', KEYS[whole], 'what', ARGV[11], 'order', order, 'state', 'done')
    redis.call('PEXPIRE', KEYS[whole], digits(hold > 0 and math.max(keep, hold + 600000) or keep))
end
if deadlines and redis.call('PTTL', KEYS[deadlines]) < hold + DAY then
    redis.call('PEXPIRE', KEYS[deadlines], digits(hold + DAY))
end
if orders and redis.call('PTTL', KEYS[orders]) < lasts - now + 7 * DAY then
    redis.call('PEXPIRE', KEYS[orders], digits(lasts - now + 8 * DAY))
end
reply[1] = least
return reply
