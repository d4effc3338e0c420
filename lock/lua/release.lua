-- Deletes those keys of a lease that are still ours and tells who waits for them.
--
-- KEYS   1..n  the lock keys
-- ARGV   1 token, 2 PUBLISH or, on a cluster, SPUBLISH, 3 message, 4..n+3 the channels of the keys
--
-- Returns {1, listeners}    all keys were ours and are deleted
--         {0, listeners}    a key was missing
--         {-1, listeners}   a key holds something else, which stays
-- listeners is the most that any PUBLISH reached, -1 where one was refused: a server without wake-ups still releases.
--
-- Arguments are checked before the first write. O(number of keys + listeners).

if #KEYS == 0 or #ARGV ~= #KEYS + 3 or ARGV[1] == '' then
    return redis.error_reply('ERR lock: bad arguments to release')
end

local answer, listeners = 1, 0
for i, value in ipairs(redis.call('MGET', unpack(KEYS))) do
    if value == ARGV[1] then
        redis.call('DEL', KEYS[i])
        local reached = redis.pcall(ARGV[2], ARGV[3 + i], ARGV[3])
        if type(reached) ~= 'number' then
            listeners = -1
        elseif listeners >= 0 then
            listeners = math.max(listeners, reached)
        end
    elseif value then
        answer = -1
    elseif answer == 1 then
        answer = 0
    end
end
return {answer, listeners}
