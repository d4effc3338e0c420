-- Writes down where an item lies, in the place where everybody looks first.
--
-- KEYS  1 switch
-- ARGV  1 layout of the item    2 end of the sale, Unix milliseconds: a day later the place may be forgotten
--
-- Returns {1, layout} if it stands, {0, the other layout} if another one does, {-9} if the sale is over;
-- {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local ends = int(ARGV[2])
if #KEYS ~= 1 or #ARGV ~= 2 or not string.find(ARGV[1], '^%d+ %d+$') or not ends then
    return {-10, 'argument', 'number of arguments'}
end
local layout = redis.pcall('HGET', KEYS[1], 'layout')
if broken(layout) then
    return {-10, 'stored', 'switch'}
end
local now = clock()
if ends <= now then
    return {-9}
end
if layout and layout ~= ARGV[1] then
    return {0, layout}
end
if not layout then
    redis.call('HSET', KEYS[1], 'layout', ARGV[1])
end
if redis.call('PTTL', KEYS[1]) < ends - now + DAY then
    redis.call('PEXPIRE', KEYS[1], digits(ends - now + DAY))
end
return {1, ARGV[1]}
