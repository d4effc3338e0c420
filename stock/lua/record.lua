-- Reads a request record.
--
-- KEYS  1 request
-- ARGV  none
--
-- Returns {0, what it is for, order, state, nth, left}, texts; {-1} no such record; {-10, 'stored', what}.
-- It writes nothing. Complexity: O(1).

local record = redis.pcall('HMGET', KEYS[1], 'taken', 'what', 'order', 'state')
if broken(record) then
    return {-10, 'stored', 'request record'}
end
if not record[1] then
    return {-1}
end
local nth, left = string.match(record[1], RECORD)
if not record[2] or not record[3] or not int(nth) or not int(left) then
    return {-10, 'stored', 'request record'}
end
return {0, record[2], record[3], record[4] or 'held', nth, left}
