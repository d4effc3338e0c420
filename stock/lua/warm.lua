-- Opens the sale of an item in an activity, or brings it up to what is asked for. It never lowers a counter and never
-- makes one again that has gone before its time. An hour after the item's last sale it goes by itself: then the next sale
-- counts anew, while the switch still remembers steps of operators and when activities were.
--
-- KEYS  1 switch    then the shards of the counter; of a hash, the first one is the switch as well
-- ARGV  1 units that this counter is to have had in all    2 field of the activity    3 start    4 end, in Unix milliseconds
--       5 limit per user, 0: none    6 most units of one order, 0: no limit    7 scope of the limit
--       8 1: take over a counter that is not ours    9 layout of the item    10 channel to tell, and 11 the item, that there
--       are units again    12 1: do it, 0: only look whether it would be refused
--       13 units of all segments together once all of them are there, 0: not yet, or the item has none
--
-- Returns {code, units in the counter, units added, state of the switch, units of all segments as the switch knows them or 0};
-- the code is
--   0 warmed: it was not there, or only its switch from an earlier sale    1 it was there: up to date now
--   2 refused: more units were warmed already    3 refused: the counter is there without a switch
--   4 refused: the counter is gone    5 refused: the sale has started; scope and start must stay, its end may move by a day
--   6 refused: the item lies otherwise    -9 refused: over already    -10, 'argument' or 'stored', what
--
-- Everything is checked before the first write. Complexity: O(shards).

local shards = #KEYS - 1
local units, starts, ends, limit, most = int(ARGV[1]), int(ARGV[3]), int(ARGV[4]), int(ARGV[5]), int(ARGV[6])
local whole = int(ARGV[13])
if shards < 1 or #ARGV ~= 13 then
    return {-10, 'argument', 'number of arguments'}
end
if not units or not whole then
    return {-10, 'argument', 'units'}
end
if not starts or not ends or starts >= ends or ends > MAX - 8 * DAY then
    return {-10, 'argument', 'start and end'}
end
if not limit or not most or not string.find(ARGV[7], '^%d$') or not string.find(ARGV[9], '^%d+ %d+$') then
    return {-10, 'argument', 'limit'}
end

local foreign = false
for s = 2, #KEYS do
    foreign = foreign or redis.call('EXISTS', KEYS[s]) == 1
end
local left = counted(2, shards)
local switch = redis.pcall('HMGET', KEYS[1], 'state', 'warmed', 'restocked', 'withdrawn', 'withheld', 'moving', 'returns', 'end',
    'layout', ARGV[2], 'whole', 'paused')
local old = not broken(switch) and switch[1]
local takeover = not old and foreign and ARGV[8] == '1'
if not old and foreign and not takeover then
    return {3, 0, 0, ''}
end
if broken(switch) and not takeover then
    return {-10, 'stored', 'switch'}
end
if left == false and not takeover then
    return {-10, 'stored', 'counter'}
end

local warmed, latest, returns
local first = ends -- the earliest end that the activity ever had: markers may have been made for it
if old then
    warmed, latest, returns = int(switch[2]), int(switch[8]), int(switch[7])
    for i = 2, 8 do
        if not int(switch[i]) then
            return {-10, 'stored', 'switch'}
        end
    end
end
local now = clock()
if ends <= now then
    return {-9, 0, 0, ''}
end
if not broken(switch) and switch[9] and switch[9] ~= ARGV[9] then
    return {6, 0, 0, old or ''}
end
if old and switch[10] then
    local began, scope, earliest = string.match(switch[10], '^(%d+) %d+ %d+ %d+ (%d) (%d+)$')
    began, earliest = int(began), int(earliest)
    if not began or not earliest then
        return {-10, 'stored', 'switch'}
    end
    if began <= now then
        if scope ~= ARGV[7] or ends > earliest + DAY or starts > now then
            return {5, 0, 0, old}
        end
        first = math.min(first, earliest)
    end
end
local anew = old and not left and latest + HOUR <= now
if old and not left and not anew or whole > 0 and (not old or anew) then
    return {4, 0, 0, old or ''}
end
if old and not anew and units < warmed then
    return {2, digits(left), 0, old}
end
local added = old and not anew and units - warmed or units
if old and not anew and left + added > MAX then
    return {-10, 'argument', 'units'}
end
local known = old and not anew and switch[11] or '0'
if not int(known) then
    return {-10, 'stored', 'switch'}
end
if ARGV[12] ~= '1' then
    return {old and not anew and 1 or 0, digits(old and left or 0), '0', old or '', known}
end
whole = math.max(whole, int(known))

local act = table.concat({ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], digits(first)}, ' ')
latest = math.max(latest or 0, ends)
if anew then
    left = 0
    -- A unit still on its way between segments belongs to the earlier sale: see move_give.lua.
    if old == 'frozen' then -- by the earlier sale, whose units are gone
        old = switch[12] and 'paused' or 'open'
    end
    redis.call('HSET', KEYS[1], 'state', old, 'warmed', ARGV[1], 'restocked', '0', 'withdrawn', '0', 'withheld', '0', 'returns', digits(returns + 1),
        'end', digits(latest), 'anew', digits(now), 'whole', '0', ARGV[2], act)
    make(2, shards, units)
    if units > 0 then
        tell(ARGV[10], ARGV[11])
    end
elseif old then
    redis.call('HSET', KEYS[1], 'warmed', ARGV[1], 'end', digits(latest), ARGV[2], act)
    if whole > 0 then
        redis.call('HSET', KEYS[1], 'whole', digits(whole))
    end
    if added > 0 then
        give(2, shards, 0, added)
        redis.call('HSET', KEYS[1], 'returns', digits(returns + 1))
        if left == 0 then
            tell(ARGV[10], ARGV[11])
        end
    end
else
    if takeover then
        for s = 1, #KEYS do
            redis.call('DEL', KEYS[s])
        end
    end
    left = 0
    -- What every deduct reads comes first: a small hash is searched from its start.
    redis.call('HSET', KEYS[1], 'state', 'open', 'layout', ARGV[9], ARGV[2], act, 'warmed', ARGV[1], 'restocked', '0',
        'withdrawn', '0', 'withheld', '0', 'moving', '0', 'returns', '0', 'end', digits(latest))
    make(2, shards, units)
end
redis.call('PEXPIREAT', KEYS[1], digits(latest + DAY))
for s = 2, #KEYS do
    redis.call('PEXPIREAT', KEYS[s], digits(latest + HOUR))
end
return {old and not anew and 1 or 0, digits(left + added), digits(added), old or 'open', digits(whole)}
