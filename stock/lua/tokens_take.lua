-- Takes one token for a user.
--
-- KEYS  1 switch    2 list    3 tokens taken    4 tokens of each user    5 request
-- ARGV  1 request    2 user    3 what it is for    4 milliseconds that the request record lives, at least
--       5 name of this call
--
-- Returns {0, token, left}: taken. {-4, token, state, left or -1}: request done before, with what was left if it was this call
-- that did it. {-1} not loaded. {-2} none left. {-3, tokens the user has}. {-5} the request was for something else.
-- {-8, ms until the start}. {-9} over. {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local keep = int(ARGV[4])
if #KEYS ~= 5 or #ARGV ~= 5 or ARGV[1] == '' or ARGV[3] == '' or not keep or keep < 1 then
    return {-10, 'argument', 'number of arguments'}
end
local switch = redis.pcall('HMGET', KEYS[1], 'starts', 'ends', 'limit')
local starts, ends, limit
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
if switch[1] then
    starts, ends, limit = int(switch[1]), int(switch[2]), int(switch[3])
    if not starts or not ends or not limit then
        return {-10, 'stored', 'switch'}
    end
end
local left = redis.pcall('LLEN', KEYS[2])
if broken(left) then
    return {-10, 'stored', 'list'}
end
local kind = redis.call('TYPE', KEYS[3]).ok
if kind ~= 'none' and kind ~= 'hash' then
    return {-10, 'stored', 'tokens taken'}
end
local has = redis.pcall('HGET', KEYS[4], ARGV[2])
if broken(has) or has and not int(has) then
    return {-10, 'stored', 'tokens of a user'}
end
has = has and int(has) or 0
local record = redis.pcall('HMGET', KEYS[5], 'what', 'token', 'state', 'by', 'left')
if broken(record) or record[1] and not (record[2] and record[3] and record[4] and int(record[5])) then
    return {-10, 'stored', 'request record'}
end

if record[1] then
    if record[1] ~= ARGV[3] then
        return {-5}
    end
    return {-4, record[2], record[3], record[4] == ARGV[5] and int(record[5]) or -1}
end
local now = clock()
if not starts then
    return {-1}
end
if now < starts then
    return {-8, starts - now}
end
if now >= ends then
    return {-9}
end
if left == 0 then
    return {-2}
end
if limit > 0 and has >= limit then
    return {-3, has}
end

local token = redis.call('LPOP', KEYS[2])
redis.call('HSET', KEYS[3], token, ARGV[1] .. ' ' .. ARGV[2])
redis.call('HSET', KEYS[4], ARGV[2], digits(has + 1))
redis.call('HSET', KEYS[5], 'what', ARGV[3], 'token', token, 'state', 'held', 'by', ARGV[5], 'left', digits(left - 1))
for k = 3, 4 do
    if redis.call('PTTL', KEYS[k]) < ends + DAY - now then -- longer where the sale was to end later
        redis.call('PEXPIREAT', KEYS[k], digits(ends + DAY))
    end
end
redis.call('PEXPIRE', KEYS[5], ARGV[4])
return {0, token, left - 1}
