-- Closes what whole_open.lua has opened.
--
-- KEYS  1 the whole order's request
-- ARGV  1 name of this runner    2 state: done, refused, or open when the runner gives up and anybody may take over
--
-- Returns {1} if this runner's turn it was, {0} if another has taken over; {-10, 'argument' or 'stored', what}.
-- Complexity: O(1).

if #KEYS ~= 1 or #ARGV ~= 2 then
    return {-10, 'argument', 'number of arguments'}
end
local record = redis.pcall('HMGET', KEYS[1], 'by', 'state')
if broken(record) then
    return {-10, 'stored', 'request record'}
end
if record[1] ~= ARGV[1] or record[2] ~= 'open' and record[2] ~= ARGV[2] then
    return {0}
end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'at', '0')
return {1}
