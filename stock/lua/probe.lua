-- Looks whether the server lets this user's scripts call all their commands. A script that is refused one stops there, between
-- its writes.
--
-- KEYS  1 a key that is not there
-- ARGV  1 stock, quota or tokens    2 1: with a stream
--
-- Returns {0, name of a command, ...} with those that are refused, or unknown to the server; {-10, 'argument', what}.
-- It leaves nothing: a command that would write is given what it cannot take, and the value that RPUSH adds is removed again.
-- So nothing has to be checked before the first write. Complexity: O(1).

local kind, stream = ARGV[1], ARGV[2] == '1'
if #KEYS ~= 1 or #ARGV ~= 2 or kind ~= 'stock' and kind ~= 'quota' and kind ~= 'tokens' then
    return {-10, 'argument', 'number of arguments'}
end
local reply = {0}

-- see keeps the command's name if that is what the answer is about, and not the command's arguments.
local function see(command, answer)
    if not broken(answer) then
        return true
    end
    for _, words in ipairs({'NOPERM', 'ACL failure', 'user executing the script', 'nknown Redis command', 'nknown command'}) do
        if string.find(answer.err, words, 1, true) then
            reply[#reply + 1] = command
            return false
        end
    end
    return true
end

see('TIME', redis.pcall('TIME'))
see('GET', redis.pcall('GET', KEYS[1]))
see('SET', redis.pcall('SET', KEYS[1], '0', 'no option'))
see('EXISTS', redis.pcall('EXISTS', KEYS[1]))
see('TYPE', redis.pcall('TYPE', KEYS[1]))
local removes = see('DEL', redis.pcall('DEL', KEYS[1]))
see('PTTL', redis.pcall('PTTL', KEYS[1]))
see('PEXPIRE', redis.pcall('PEXPIRE', KEYS[1], '1'))
see('PEXPIREAT', redis.pcall('PEXPIREAT', KEYS[1], '1'))
see('HSET', redis.pcall('HSET', KEYS[1], 'a field', 'its value', 'no value'))
see('HGET', redis.pcall('HGET', KEYS[1], 'a field'))
see('HMGET', redis.pcall('HMGET', KEYS[1], 'a field'))
see('HDEL', redis.pcall('HDEL', KEYS[1], 'a field'))
see('HLEN', redis.pcall('HLEN', KEYS[1]))
if kind == 'tokens' then
    see('LLEN', redis.pcall('LLEN', KEYS[1]))
    removes = see('LPOP', redis.pcall('LPOP', KEYS[1])) and removes
    see('RENAME', redis.pcall('RENAME', KEYS[1], KEYS[1]))
    if removes and see('RPUSH', redis.pcall('RPUSH', KEYS[1], '0')) then
        redis.call('DEL', KEYS[1])
    end
    return reply
end
see('HGETALL', redis.pcall('HGETALL', KEYS[1]))
see('HKEYS', redis.pcall('HKEYS', KEYS[1]))
see('ZADD', redis.pcall('ZADD', KEYS[1], 'no number', 'a member'))
see('ZCARD', redis.pcall('ZCARD', KEYS[1]))
see('ZRANGEBYSCORE', redis.pcall('ZRANGEBYSCORE', KEYS[1], '0', '0'))
see('ZREM', redis.pcall('ZREM', KEYS[1], 'a member'))
see('ZSCORE', redis.pcall('ZSCORE', KEYS[1], 'a member'))
if kind == 'stock' then
    see('DECRBY', redis.pcall('DECRBY', KEYS[1], 'no number'))
    see('INCRBY', redis.pcall('INCRBY', KEYS[1], 'no number'))
    see('HEXISTS', redis.pcall('HEXISTS', KEYS[1], 'a field'))
else
    see('HINCRBY', redis.pcall('HINCRBY', KEYS[1], 'a field', 'no number'))
end
if stream then
    see('XLEN', redis.pcall('XLEN', KEYS[1]))
    see('XADD', redis.pcall('XADD', KEYS[1], '*', 'a field', 'its value', 'no value'))
end
return reply
