-- Opens the record of an order whose lines lie in several slots: one runner at a time takes them.
--
-- KEYS  1 the whole order's request
-- ARGV  1 what the whole order is for    2 order    3 name of this runner    4 milliseconds that the record lives
--       5 milliseconds after which another runner may take over
--
-- Returns {0, order, try} to go on with; {1, order, try} when all lines are in; {-5, 0} {-6, 0}; {-10, 'argument' or
-- 'stored', what}. A refused order leaves only its number of tries, so it is judged afresh.
-- Everything is checked before the first write. Complexity: O(1).

local keep, grace = int(ARGV[4]), int(ARGV[5])
if #KEYS ~= 1 or #ARGV ~= 5 or not keep or not grace or ARGV[1] == '' or ARGV[2] == '' or ARGV[3] == '' then
    return {-10, 'argument', 'number of arguments'}
end
local record = redis.pcall('HMGET', KEYS[1], 'what', 'order', 'state', 'try', 'by', 'at', 'taken')
if broken(record) then
    return {-10, 'stored', 'request record'}
end
if record[7] then
    return {-5, 0} -- of an order with one line
end
local now, order, try = clock(), ARGV[2], 0
if record[1] then
    local at = int(record[6])
    try = int(record[4])
    if record[3] ~= 'refused' and record[1] ~= ARGV[1] then
        return {-5, 0}
    end
    if record[3] == 'done' then
        return {1, record[2], try or 1}
    end
    if not try or not at or not record[2] or record[3] ~= 'open' and record[3] ~= 'refused' then
        return {-10, 'stored', 'request record'}
    end
    if record[3] == 'open' then
        if record[5] == ARGV[3] then
            return {0, record[2], try}
        end
        if now < at + grace then
            return {-6, 0}
        end
        order = record[2]
    end
end
redis.call('HSET', KEYS[1], 'what', ARGV[1], 'order', order, 'state', 'open', 'try', digits(try + 1), 'by', ARGV[3], 'at', digits(now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {0, order, try + 1}
