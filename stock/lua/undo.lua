-- Takes one line of an order in several slots back, because another line was refused: as if it had never been taken. A
-- copy of its deduct that is still on its way finds the record and does nothing; a later try of the order is judged afresh.
--
-- KEYS  1 hold    2 request    3 deadlines    4 switch    with limits: 5 marker    then the shards of the counter
-- ARGV  1 order of the line    2 its request    3 what it is for    4 empty    5 empty    6 field of the activity in the switch
--       7 scope of the limit, empty without limits    8 layout of the item, empty: the caller knows the place    9 try    10 shards    11 the user's own shard    12 channel to tell, and    13 the item, that there
--       are units again    14 milliseconds that the record lives
--
-- Returns {1, units given back}. {-10, 'argument' or 'stored', what}. {-20, 1, scope or empty, layout}: the item lies or is
-- limited otherwise.
-- Everything is checked before the first write. Complexity: O(log holds).

local try, shards, home, keep = int(ARGV[9]), int(ARGV[10]), int(ARGV[11]), int(ARGV[14])
local marker = ARGV[7] ~= '' and 5
local first = marker and 6 or 5
if #ARGV ~= 14 or not try or try < 1 or not shards or shards < 1 or not home or not keep or #KEYS ~= first + shards - 1 then
    return {-10, 'argument', 'number of arguments'}
end
local elsewhere = placed()
if elsewhere then
    return elsewhere
end
local record = redis.pcall('HMGET', KEYS[2], 'try', 'state', 'taken')
if broken(record) or record[1] and not int(record[1]) then
    return {-10, 'stored', 'request record'}
end
if record[2] == 'undone' and record[1] and int(record[1]) >= try then
    return {1, 0}
end
if record[1] and int(record[1]) > try or (record[2] or record[3]) and not record[1] then
    return {1, 0} -- a later try's, or no line of such an order: not ours to undo
end
local p, proof = find()
local open = 0
if p then
    open = proof.units - proof.confirmed - proof.released
elseif proof[1] == -10 then
    return proof
end
local left = counted(first, shards)
if left == false or left and left + open > MAX then
    return {-10, 'stored', 'counter'}
end
local returns = redis.pcall('HGET', KEYS[4], 'returns')
if broken(returns) or returns and not int(returns) then
    return {-10, 'stored', 'switch'}
end
if marker then
    local kind = redis.call('TYPE', KEYS[marker]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return {-10, 'stored', 'marker'}
    end
end

if open > 0 and left then
    give(first, shards, home, open)
    if returns then
        redis.call('HSET', KEYS[4], 'returns', digits(int(returns) + 1))
    end
    if left == 0 then
        tell(ARGV[12], ARGV[13])
    end
end
if open > 0 then
    if marker then
        redis.call('HDEL', KEYS[marker], ARGV[1])
    end
    redis.call('DEL', KEYS[1])
    redis.call('ZREM', KEYS[3], ARGV[1])
end
redis.call('HSET', KEYS[2], 'state', 'undone', 'try', ARGV[9])
if redis.call('PTTL', KEYS[2]) < keep then
    redis.call('PEXPIRE', KEYS[2], ARGV[14])
end
return {1, open}
