-- Opens the sale of an item in an activity, or brings it up to what is asked for. It never lowers a counter and never
-- makes one again that has gone.
--
-- KEYS  1 counter    2 switch
-- ARGV  1 units of the item in all    2 field of the activity    3 start    4 end, in Unix milliseconds
--       5 limit per user, 0: none    6 most units of one order, 0: no limit    7 scope of the limit
--       8 1: take over a counter that is not ours
--
-- Returns {code, units in the counter, units added, state of the switch}; the code is
--   0 warmed: it was not there    1 it was there: up to date now
--   2 refused: more units were warmed already, use Adjust    3 refused: the counter is there without a switch
--   4 refused: the counter is gone    5 refused: the sale has started; its scope must stay, its end may move by a day
--   -9 refused: over already    -10, 'argument' or 'stored', what
--
-- Everything is checked before the first write. Complexity: O(1).

local HOUR, DAY = 3600000, 86400000
local units, starts, ends, limit, most = int(ARGV[1]), int(ARGV[3]), int(ARGV[4]), int(ARGV[5]), int(ARGV[6])
if #KEYS ~= 2 or #ARGV ~= 8 then
    return {-10, 'argument', 'number of arguments'}
end
if not units or units < 1 then
    return {-10, 'argument', 'units'}
end
if not starts or not ends or starts >= ends or ends > MAX - 8 * DAY then
    return {-10, 'argument', 'start and end'}
end
if not limit or not most or not string.find(ARGV[7], '^%d$') then
    return {-10, 'argument', 'limit'}
end

local counter = redis.pcall('GET', KEYS[1])
local switch = redis.pcall('HMGET', KEYS[2], 'state', 'warmed', 'restocked', 'withdrawn', 'withheld', 'end', ARGV[2])
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
local takeover = not switch[1] and ARGV[8] == '1'
if not switch[1] and counter and not takeover then
    return {3, 0, 0, ''}
end
if not takeover and (broken(counter) or counter and not int(counter)) then
    return {-10, 'stored', 'counter'}
end

local warmed, latest = int(switch[2]), int(switch[6])
local first = ends -- the earliest end that the activity ever had: markers may have been made for it
if switch[1] then
    if not warmed or not latest or not int(switch[3]) or not int(switch[4]) or not int(switch[5]) then
        return {-10, 'stored', 'switch'}
    end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ends <= now then
    return {-9, 0, 0, ''}
end
if switch[7] then
    local began, scope, earliest = string.match(switch[7], '^(%d+) %d+ %d+ %d+ (%d) (%d+)$')
    began, earliest = int(began), int(earliest)
    if not began or not earliest then
        return {-10, 'stored', 'switch'}
    end
    if began <= now then
        if scope ~= ARGV[7] or ends > earliest + DAY then
            return {5, 0, 0, switch[1]}
        end
        first = math.min(first, earliest)
    end
end
if switch[1] and not counter then
    return {4, 0, 0, switch[1]}
end
if switch[1] and units < warmed then
    return {2, int(counter), 0, switch[1]}
end
if switch[1] and int(counter) + units - warmed > MAX then
    return {-10, 'argument', 'units'}
end

local act = table.concat({ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], digits(first)}, ' ')
latest = math.max(latest or 0, ends)
local left, added
if switch[1] then
    added = units - warmed
    left = int(counter) + added
    if added > 0 then
        redis.call('INCRBY', KEYS[1], digits(added))
    end
    redis.call('HSET', KEYS[2], 'warmed', ARGV[1], 'end', digits(latest), ARGV[2], act)
else
    added, left = units, units
    redis.call('SET', KEYS[1], ARGV[1])
    redis.call('HSET', KEYS[2], 'state', 'open', 'warmed', ARGV[1], 'restocked', '0', 'withdrawn', '0', 'withheld', '0',
        'end', digits(latest), ARGV[2], act)
end
redis.call('PEXPIREAT', KEYS[1], digits(latest + HOUR))
redis.call('PEXPIREAT', KEYS[2], digits(latest + DAY))
return {switch[1] and 1 or 0, left, added, switch[1] or 'open'}
