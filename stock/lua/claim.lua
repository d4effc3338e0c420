-- Writes down a decision that every instance must share, for as long as it matters: the first one stands.
--
-- KEYS  1 the decision
-- ARGV  1 value    2 end of the sale, Unix milliseconds: a day later the decision may be forgotten
--
-- Returns {1, value} if it stands, {0, the other value} if another one does, {-9} if the sale is over;
-- {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local ends = int(ARGV[2])
if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' or not ends then
    return {-10, 'argument', 'number of arguments'}
end
local value = redis.pcall('GET', KEYS[1])
if broken(value) then
    return {-10, 'stored', 'decision'}
end
local now = clock()
if ends <= now then
    return {-9}
end
if value and value ~= ARGV[1] then
    return {0, value}
end
local life = ends - now + DAY
if not value then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', digits(life))
elseif redis.call('PTTL', KEYS[1]) < life then
    redis.call('PEXPIRE', KEYS[1], digits(life))
end
return {1, ARGV[1]}
