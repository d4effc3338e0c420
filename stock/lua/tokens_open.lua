-- Opens a sale of tokens: puts the list that was built aside in its place, unless tokens have been loaded before.
--
-- KEYS  1 switch    2 list    3 the list aside    4 tokens taken    5 tokens of each user
-- ARGV  1 tokens in all    2 start    3 end, in Unix milliseconds    4 tokens a user may have, 0: no limit
--       5 version of the tokens    6 1: put the list in its place, 0: only look
--
-- Returns {code, left, taken so far or 0}; the code is
--   0 opened now    1 open before, with these tokens; start, end and limit are those of the call now    2 not open (only looked)
--   3 refused: other tokens were loaded    4 refused: the list aside is not complete    -9 refused: over already
--   -10, 'argument' or 'stored', what
--
-- Everything is checked before the first write. Complexity: O(1).

local total, starts, ends, limit = int(ARGV[1]), int(ARGV[2]), int(ARGV[3]), int(ARGV[4])
if #KEYS ~= 5 or #ARGV ~= 6 or not total or total < 1 or ARGV[5] == '' then
    return {-10, 'argument', 'number of arguments'}
end
if not starts or not ends or starts >= ends or ends > MAX - 8 * DAY or not limit then
    return {-10, 'argument', 'start and end'}
end
local switch = redis.pcall('HMGET', KEYS[1], 'version', 'starts', 'ends', 'total')
if broken(switch) or switch[1] and not (int(switch[2]) and int(switch[3]) and int(switch[4])) then
    return {-10, 'stored', 'switch'}
end
local left, aside = redis.pcall('LLEN', KEYS[2]), redis.pcall('LLEN', KEYS[3])
if broken(left) or broken(aside) then
    return {-10, 'stored', 'list'}
end
local now = clock()
if ends <= now then
    return {-9, 0, 0}
end
if switch[1] then
    if switch[1] ~= ARGV[5] then
        return {3, left, int(switch[4]) - left}
    end
    redis.call('HSET', KEYS[1], 'starts', ARGV[2], 'ends', ARGV[3], 'limit', ARGV[4])
    local last = digits(math.max(ends, int(switch[3])) + DAY)
    redis.call('PEXPIREAT', KEYS[1], last)
    redis.call('PEXPIREAT', KEYS[2], last)
    redis.call('PEXPIREAT', KEYS[4], last)
    redis.call('PEXPIREAT', KEYS[5], last)
    redis.call('DEL', KEYS[3])
    return {1, left, int(switch[4]) - left}
end
if left > 0 then
    return {3, left, 0}
end
if ARGV[6] ~= '1' then
    return {2, 0, 0}
end
if aside ~= total then
    return {4, aside, 0}
end
redis.call('RENAME', KEYS[3], KEYS[2])
redis.call('HSET', KEYS[1], 'version', ARGV[5], 'starts', ARGV[2], 'ends', ARGV[3], 'limit', ARGV[4], 'total', ARGV[1])
redis.call('PEXPIREAT', KEYS[1], digits(ends + DAY))
redis.call('PEXPIREAT', KEYS[2], digits(ends + DAY))
return {0, total, 0}
