-- Decides an order of one or more lines, all or nothing, and takes its units.
--
-- In front of it stand the counter's options: LIFE, milliseconds that a request record lives at least; WAIT, milliseconds
-- of the hold, 0: none; BACKLOG, most entries of the stream, false: no stream; LIMITS, true or false.
--
-- KEYS  for each line: switch, request, with limits: marker, with a hold: hold, then the shards of its counter
--       with two lines or more: the whole order's request
--       with a hold: deadlines
--       with a stream: stream; a try only looks how long it is
-- ARGV  1 order    2 request    3 field of the activity in the switch    4 trace context, may be empty
--       then for each line: units, what it is for, scope of the limit, layout of the item, shards of its counter and the
--       user's own shard (empty: 1 0); where an order has several lines, the line's number
--       and where an order has several lines: what the whole order is for    try, 0 if its lines are all here
--
-- Returns an array; its first element is the code.
--   {left, order, then nth and left of each line}          taken; left is the least of the lines'
--   {-4, order, state, then nth and left of each line}      request done before; state: held, confirmed or released.
--                                                           A line of an earlier try belongs to this one from now on
--   {-1, line} {-2, line, left} {-3, line, used} {-5, line} {-6, line} {-7, line, state}
--   {-8, line, ms until the start} {-9, line} {-11}         refused; lines count from 1
--   {-10, 'argument' or 'stored', what}                     wrong; nothing written
--   {-20, line, scope or empty, layout}                     the item lies or is limited otherwise: ask again with this
--
-- Everything is checked before the first write: the arguments, the type and the value behind every key; of a marker without a
-- limit that has many entries, the last number.
-- Complexity: O(lines + orders that the user has under the limit), O(lines) without a limit; and O(log holds) with a hold.

-- Without a limit nothing bounds how many orders a user has. Where they are more than these few, the marker is not read as
-- a whole any more: its field '', which is no order's, has the last number, and no order a higher one.
local FEW = 16

local order, request, trace = ARGV[1], ARGV[2], ARGV[4]
local lines, per_line, try = 1, 5, 0
local numbered = #ARGV ~= 9
if numbered then
    lines, per_line, try = (#ARGV - 6) / 6, 6, int(ARGV[#ARGV])
end
if lines < 1 or lines % 1 ~= 0 or not try then
    return {-10, 'argument', 'number of arguments'}
end
if order == '' or request == '' then
    return {-10, 'argument', 'id'}
end

-- recorded reads a request record, a reply of HGETALL: nil if there is none, false if it cannot be read.
local function recorded(reply)
    if broken(reply) then
        return false
    end
    if #reply == 0 then
        return nil
    end
    local record = {}
    for i = 1, #reply, 2 do
        record[reply[i]] = reply[i + 1]
    end
    if record.state == 'undone' or record.try then
        record.try = int(record.try)
        if not record.try then
            return false
        end
    end
    if record.state == 'undone' then
        return record
    end
    if record.taken then
        record.nth, record.left = string.match(record.taken, RECORD)
        if not int(record.nth) or not int(record.left) then
            return false
        end
    elseif not record.state then
        return false
    end
    return record.what and record.order and record or false
end

-- Read everything, and look at each value before judging any of it.

local list, k = {}, 0
for i = 1, lines do
    local a = 4 + (i - 1) * per_line
    local units, scope, layout = int(ARGV[a + 1]), ARGV[a + 3], ARGV[a + 4]
    if not units or units < 1 then
        return {-10, 'argument', 'units'}
    end
    local shards, home = 1, 0
    if ARGV[a + 5] ~= '' then
        shards, home = string.match(ARGV[a + 5], '^(%d+) (%d+)$')
        shards, home = int(shards), int(home)
    end
    if not shards or shards < 1 or not home then
        return {-10, 'argument', 'shards'}
    end
    local control, own, marker, hold = k + 1, k + 2, nil, nil
    k = k + 2
    if LIMITS then
        k = k + 1
        marker = k
    end
    if WAIT > 0 then
        k = k + 1
        hold = k
    end
    local counter = k + 1
    k = k + shards
    if k > #KEYS then
        return {-10, 'argument', 'number of keys'}
    end

    local switch = redis.pcall('HMGET', KEYS[control], 'state', 'layout', ARGV[3])
    if broken(switch) then
        return {-10, 'stored', 'switch'}
    end
    if switch[2] and switch[2] ~= layout then
        return {-20, i, '', switch[2]}
    end
    local starts, ends, limit, most, over
    if switch[3] then
        starts, ends, limit, most, over = string.match(switch[3], '^(%d+) (%d+) (%d+) (%d+) (%d) %d+$')
        starts, ends, limit, most = int(starts), int(ends), int(limit), int(most)
        if not switch[1] or not starts or not ends or not limit or not most then
            return {-10, 'stored', 'switch'}
        end
        if over ~= scope then
            return {-20, i, over, switch[2] or layout}
        end
    end

    local left = counted(counter, shards)
    if left == false then
        return {-10, 'stored', 'counter'}
    end

    local line = numbered and '/' .. ARGV[a + 6] or ''
    local used, taken, mine, count, last = 0, nil, false, 1, nil
    if LIMITS then
        taken = {}
        if limit == 0 then
            count = redis.pcall('HLEN', KEYS[marker])
            if broken(count) then
                return {-10, 'stored', 'marker'}
            end
        end
        if count > FEW then
            local marks = redis.call('HMGET', KEYS[marker], '', order .. line)
            used, last, mine = count, int(marks[1]), marks[2]
        end
        if count > 0 and not last then
            local marks = redis.pcall('HGETALL', KEYS[marker])
            if broken(marks) then
                return {-10, 'stored', 'marker'}
            end
            local highest = 0
            for m = 1, #marks, 2 do
                local n, nth = string.match(marks[m + 1], '^(%d+):?(%d*)$')
                n, nth = int(n), nth ~= '' and int(nth) or 1
                if not n or not nth then
                    return {-10, 'stored', 'marker'}
                end
                if marks[m] == '' then
                    last = n
                else
                    used = used + n
                    taken[nth] = true
                    highest = math.max(highest, nth)
                    mine = mine or marks[m] == order .. line
                end
            end
            if count > FEW then
                last = highest
            end
        end
    end

    local record = recorded(redis.pcall('HGETALL', KEYS[own]))
    if record == false then
        return {-10, 'stored', 'request record'}
    end
    local held = false
    if hold then
        local fields = redis.pcall('HLEN', KEYS[hold])
        if broken(fields) then
            return {-10, 'stored', 'hold'}
        end
        held = fields > 0
    end
    list[i] = {
        order = order .. line, id = request .. line, units = units, what = ARGV[a + 2], shards = shards, home = home,
        marker = marker, hold = hold, request = own, counter = counter,
        state = switch[1], starts = starts, ends = ends, limit = limit, most = most,
        left = left, used = used, taken = taken, last = last, nth = count > FEW and last + 1 or 1, mine = mine or held, record = record,
    }
end

local whole, deadlines, orders, first, entries
if lines > 1 then
    k = k + 1
    whole = k
end
if WAIT > 0 then
    k = k + 1
    deadlines = k
end
if BACKLOG then
    k = k + 1
    orders = k
end
if #KEYS ~= k then
    return {-10, 'argument', 'number of keys'}
end
if whole then
    first = recorded(redis.pcall('HGETALL', KEYS[whole]))
    if first == false then
        return {-10, 'stored', 'request record'}
    end
    if first and first.state == 'refused' then
        first = nil -- lines that lay in several slots were refused: only the number of tries is left
    end
elseif list[1].record and list[1].record.state ~= 'undone' then
    first = list[1].record
end
if deadlines and broken(redis.pcall('ZCARD', KEYS[deadlines])) then
    return {-10, 'stored', 'deadlines'}
end
if orders then
    entries = redis.pcall('XLEN', KEYS[orders])
    if broken(entries) then
        return {-10, 'stored', 'stream'}
    end
end

-- The request has been seen before.

if first then
    if first.what ~= (whole and ARGV[#ARGV - 1] or list[1].what) then
        return {-5, 0}
    end
    if first.state == 'open' then
        return {-6, 0}
    end
    if first.try and first.try < try then
        -- The earlier try's runner may be about to take its lines back: the line is not its own any more.
        redis.call('HSET', KEYS[list[1].request], 'try', ARGV[#ARGV])
    end
    local state, reply = 'released', {-4, first.order, ''}
    for i = 1, lines do
        local r = list[i].record
        if not r or r.what ~= list[i].what or not r.nth then
            return {-5, i}
        end
        if r.state ~= 'released' then
            state = r.state or 'held'
        end
        reply[#reply + 1] = r.nth
        reply[#reply + 1] = r.left
    end
    reply[3] = state
    return reply
end
for i = 1, lines do
    local l = list[i]
    local undone = l.record and l.record.state == 'undone'
    if undone and try > 0 and l.record.try >= try then
        return {-6, i}
    end
    if l.record and not undone or l.mine then
        return {-5, i}
    end
end

-- Judge. Lines may share a counter or a marker, so what earlier lines will take counts for the later ones.

-- together returns the units of the i-th line and of those before it that share its counter, or its marker.
local function together(i, which)
    local units = list[i].units
    for j = 1, i - 1 do
        if KEYS[list[j][which]] == KEYS[list[i][which]] then
            units = units + list[j].units
        end
    end
    return units
end

local now = clock()
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
    local wanted = together(i, 'counter')
    if l.left < wanted then
        return {-2, i, l.left}
    end
    l.left = l.left - wanted
    if LIMITS then
        if l.limit > 0 and l.used + together(i, 'marker') > l.limit then
            return {-3, i, l.used}
        end
        if l.limit ~= 1 then
            for j = 1, i - 1 do
                if KEYS[list[j].marker] == KEYS[l.marker] then
                    l.taken[list[j].nth] = true
                end
            end
            while l.taken[l.nth] do
                l.nth = l.nth + 1
            end
        end
    end
    if l.most > 0 and wanted > l.most then
        return {-3, i, l.used}
    end
end
if orders and entries + lines > BACKLOG then
    return {-11}
end
if try > 0 then
    orders = nil -- append.lua puts the line there when all lines of the order are in
end

-- Write. Nothing below can fail.

local least, reply, lasts = nil, {0, order}, 0
local at = (orders or deadlines) and digits(now)
local deadline = deadlines and digits(now + WAIT)
for i = 1, lines do
    local l = list[i]
    local units, nth, left = digits(l.units), digits(l.nth), digits(l.left)
    take(l.counter, l.shards, l.home, l.units)
    if LIMITS then
        redis.call('HSET', KEYS[l.marker], l.order, l.limit == 1 and units or units .. ':' .. nth)
        if l.last and l.nth > l.last then
            redis.call('HSET', KEYS[l.marker], '', nth)
        end
        -- Another item of the same activity may end later, and then so does a marker that they share.
        if lines == 1 and l.used == 0 or redis.call('PTTL', KEYS[l.marker]) < l.ends - now + DAY then
            redis.call('PEXPIREAT', KEYS[l.marker], digits(l.ends + DAY))
        end
    end
    if l.record then
        redis.call('DEL', KEYS[l.request]) -- undone by an earlier try
    end
    local taken = nth .. ' ' .. left .. (l.hold and ' 0' or ' 1')
    if try > 0 then
        redis.call('HSET', KEYS[l.request], 'what', l.what, 'order', l.order, 'taken', taken, 'try', ARGV[#ARGV])
    else
        redis.call('HSET', KEYS[l.request], 'what', l.what, 'order', l.order, 'taken', taken)
    end
    redis.call('PEXPIRE', KEYS[l.request], LIFE)
    if l.hold then
        taken = nth .. ' ' .. at .. ' ' .. deadline
        if trace ~= '' then
            redis.call('HSET', KEYS[l.hold], 'what', l.what, 'request', l.id, 'taken', taken, 'trace', trace)
        else
            redis.call('HSET', KEYS[l.hold], 'what', l.what, 'request', l.id, 'taken', taken)
        end
        redis.call('PEXPIREAT', KEYS[l.hold], digits(math.max(now + WAIT, l.ends) + DAY))
        redis.call('ZADD', KEYS[deadlines], deadline, l.order)
    end
    if orders then
        taken = nth .. ' ' .. at
        if trace ~= '' then
            redis.call('XADD', KEYS[orders], '*', 'order', l.order, 'request', l.id, 'what', l.what, 'taken', taken, 'trace', trace)
        else
            redis.call('XADD', KEYS[orders], '*', 'order', l.order, 'request', l.id, 'what', l.what, 'taken', taken)
        end
    end
    least = math.min(least or l.left, l.left)
    lasts = math.max(lasts, l.ends)
    reply[#reply + 1] = l.nth
    reply[#reply + 1] = l.left
end
if whole then
    redis.call('HSET', KEYS[whole], 'what', ARGV[#ARGV - 1], 'order', order, 'state', 'done')
    redis.call('PEXPIRE', KEYS[whole], LIFE)
end
if deadlines and redis.call('PTTL', KEYS[deadlines]) < WAIT + DAY then
    redis.call('PEXPIRE', KEYS[deadlines], digits(WAIT + DAY + HOUR))
end
if orders and redis.call('PTTL', KEYS[orders]) < lasts - now + 7 * DAY then
    redis.call('PEXPIRE', KEYS[orders], digits(lasts - now + 8 * DAY))
end
reply[1] = least
return reply
