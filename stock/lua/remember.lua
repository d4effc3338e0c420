-- Writes down again what is known of an order that is live in SQL: its entry in the limit, and its hold, or where the hold is
-- there and open, its place among the deadlines. What is there stays as it is, and no counter is touched.
--
-- KEYS  1 hold    2 request, not touched    3 deadlines    4 switch    5 marker
-- ARGV  1 order    2 its request    3 what it is for    4 empty    5 empty    6 field of the activity in the switch
--       7 scope of the limit    8 layout of the item, empty: the caller knows the place    9 units    10 nth
--       11 milliseconds of the hold, 0: none    12 trace context, may be empty
--
-- Returns {1, 1 if the entry was written, 1 if the hold or its deadline was}; {-1} there is no such sale. {-10, 'argument' or 'stored', what}
-- {-20, 1, scope or empty, layout}: the item lies or is limited otherwise.
-- Everything is checked before the first write. Complexity: O(log holds).

local units, nth, hold = int(ARGV[9]), int(ARGV[10]), int(ARGV[11])
if #KEYS ~= 5 or #ARGV ~= 12 or not units or units < 1 or not nth or nth < 1 or not hold or ARGV[1] == '' or ARGV[2] == '' then
    return {-10, 'argument', 'number of arguments'}
end
local elsewhere = placed()
if elsewhere then
    return elsewhere
end
local act = redis.call('HGET', KEYS[4], ARGV[6])
local ends, limit = string.match(act or '', '^%d+ (%d+) (%d+) %d+ %d %d+$')
ends, limit = int(ends), int(limit)
if act and not (ends and limit) then
    return {-10, 'stored', 'switch'}
end
local kinds = {}
for i = 1, 5, 2 do
    kinds[i] = redis.call('TYPE', KEYS[i]).ok
    if kinds[i] ~= 'none' and kinds[i] ~= (i == 3 and 'zset' or 'hash') then
        return {-10, 'stored', i == 1 and 'hold' or i == 3 and 'deadlines' or 'marker'}
    end
end
local due -- of a hold that is open and not listed
if hold > 0 and kinds[1] == 'hash' and not redis.call('ZSCORE', KEYS[3], ARGV[1]) then
    local old = redis.call('HMGET', KEYS[1], 'taken', 'confirmed', 'released', 'what', 'request')
    local _, _, deadline = string.match(old[1] or '', HOLD)
    local confirmed, released = int(old[2] or '0'), int(old[3] or '0')
    if not int(deadline) or not confirmed or not released then
        return {-10, 'stored', 'hold'}
    end
    if old[4] == ARGV[3] and old[5] == ARGV[2] and confirmed + released < units then
        due = deadline
    end
end
local last = kinds[5] == 'hash' and redis.call('HGET', KEYS[5], '') -- see deduct.lua
if last and not int(last) then
    return {-10, 'stored', 'marker'}
end
local now = clock()
if not act or ends + DAY <= now then
    return {-1}
end

local marked, held = 0, 0
if redis.call('HEXISTS', KEYS[5], ARGV[1]) == 0 then
    marked = 1
    redis.call('HSET', KEYS[5], ARGV[1], limit == 1 and ARGV[9] or ARGV[9] .. ':' .. ARGV[10])
    if last and int(last) < nth then
        redis.call('HSET', KEYS[5], '', ARGV[10])
    end
    -- Another item of the same activity may end later, and then so does a marker that they share.
    if redis.call('PTTL', KEYS[5]) < ends + DAY - now then
        redis.call('PEXPIREAT', KEYS[5], digits(ends + DAY))
    end
end
local function list(deadline)
    redis.call('ZADD', KEYS[3], deadline, ARGV[1])
    if redis.call('PTTL', KEYS[3]) < hold + DAY then
        redis.call('PEXPIRE', KEYS[3], digits(hold + DAY))
    end
end
if due then
    held = 1
    list(due)
elseif hold > 0 and kinds[1] == 'none' then
    held = 1
    local deadline = now + hold
    redis.call('HSET', KEYS[1], 'what', ARGV[3], 'request', ARGV[2], 'taken', ARGV[10] .. ' ' .. digits(now) .. ' ' .. digits(deadline))
    if ARGV[12] ~= '' then
        redis.call('HSET', KEYS[1], 'trace', ARGV[12])
    end
    redis.call('PEXPIREAT', KEYS[1], digits(math.max(deadline, ends) + DAY))
    list(digits(deadline))
end
return {1, marked, held}
