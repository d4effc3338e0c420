-- Appends tokens to a list that is being built aside. Sent twice, it appends once.
--
-- KEYS  1 the list aside
-- ARGV  1 tokens that it has by now    2 milliseconds that it may live    then the tokens
--
-- Returns {1}; {0} if the list has another length: it has expired, start anew; {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(tokens).

local before, life = int(ARGV[1]), int(ARGV[2])
if #KEYS ~= 1 or #ARGV < 3 or not before or not life or life < 1 then
    return {-10, 'argument', 'number of arguments'}
end
local length = redis.pcall('LLEN', KEYS[1])
if broken(length) then
    return {-10, 'stored', 'list'}
end
if length == before + #ARGV - 2 then
    return {1}
end
if length ~= before then
    return {0}
end
for i = 3, #ARGV do
    redis.call('RPUSH', KEYS[1], ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1}
