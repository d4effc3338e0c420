-- Gives a token back: to the end of the list, and to its user's limit.
--
-- KEYS  1 switch    2 list    3 tokens taken    4 tokens of each user    5 request that has taken it
-- ARGV  1 token    2 request    3 user
--
-- Returns {1}: given back. {2}: given back before. {0}: this request does not have this token. {-1}: the sale is forgotten.
-- {-10, 'argument' or 'stored', what}. Everything is checked before the first write. Complexity: O(1).

if #KEYS ~= 5 or #ARGV ~= 3 or ARGV[1] == '' or ARGV[2] == '' then
    return {-10, 'argument', 'number of arguments'}
end
local ends = redis.pcall('HGET', KEYS[1], 'ends')
if broken(ends) or ends and not int(ends) then
    return {-10, 'stored', 'switch'}
end
if broken(redis.pcall('LLEN', KEYS[2])) then
    return {-10, 'stored', 'list'}
end
local by = redis.pcall('HGET', KEYS[3], ARGV[1])
if broken(by) then
    return {-10, 'stored', 'tokens taken'}
end
local has = redis.pcall('HGET', KEYS[4], ARGV[3])
if broken(has) or has and not int(has) then
    return {-10, 'stored', 'tokens of a user'}
end
local record = redis.pcall('HMGET', KEYS[5], 'token', 'state')
if broken(record) then
    return {-10, 'stored', 'request record'}
end
if by ~= ARGV[2] .. ' ' .. ARGV[3] then
    return {record[1] == ARGV[1] and record[2] == 'released' and 2 or 0}
end
if not ends then
    return {-1}
end

redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
if redis.call('PTTL', KEYS[2]) < int(ends) + DAY - clock() then
    redis.call('PEXPIREAT', KEYS[2], digits(int(ends) + DAY))
end
if has and int(has) > 1 then
    redis.call('HSET', KEYS[4], ARGV[3], digits(int(has) - 1))
elseif has then
    redis.call('HDEL', KEYS[4], ARGV[3])
end
if record[1] == ARGV[1] then
    redis.call('HSET', KEYS[5], 'state', 'released')
end
return {1}
