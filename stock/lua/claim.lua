-- Writes down a decision that every instance must share, for as long as it matters: the first one stands.
--
-- KEYS  1 the decision
-- ARGV  1 value    2 when it may be forgotten, Unix milliseconds
--
-- Returns {1, value} if it stands, {0, the other value} if another one does; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local expires = int(ARGV[2])
if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' or not expires then
    return {-10, 'argument', 'number of arguments'}
end
local value = redis.pcall('GET', KEYS[1])
if broken(value) then
    return {-10, 'stored', 'decision'}
end
if value and value ~= ARGV[1] then
    return {0, value}
end
local now = clock()
if expires <= now then
    return {-10, 'argument', 'end'}
end
if not value then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', digits(expires - now))
elseif redis.call('PTTL', KEYS[1]) < expires - now then
    redis.call('PEXPIREAT', KEYS[1], ARGV[2])
end
return {1, ARGV[1]}
