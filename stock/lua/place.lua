-- Writes down where an item lies, in the place where everybody looks first.
--
-- KEYS  1 switch
-- ARGV  1 layout of the item    2 when it may be forgotten, Unix milliseconds
--
-- Returns {1, layout} if it stands, {0, the other layout} if another one does; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local expires = int(ARGV[2])
if #KEYS ~= 1 or #ARGV ~= 2 or not string.find(ARGV[1], '^%d+ %d+$') or not expires then
    return {-10, 'argument', 'number of arguments'}
end
local layout = redis.pcall('HGET', KEYS[1], 'layout')
if broken(layout) then
    return {-10, 'stored', 'switch'}
end
if layout and layout ~= ARGV[1] then
    return {0, layout}
end
local now = clock()
if expires <= now then
    return {-10, 'argument', 'end'}
end
if not layout then
    redis.call('HSET', KEYS[1], 'layout', ARGV[1])
end
if redis.call('PTTL', KEYS[1]) < expires - now then
    redis.call('PEXPIREAT', KEYS[1], ARGV[2])
end
return {1, ARGV[1]}
