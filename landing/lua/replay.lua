-- Puts a dead letter back into the stream, as it was.
--
-- KEYS  1 stream    2 its dead letters
-- ARGV  1 id among the dead letters
--
-- Returns {1, id in the stream}; {0} there is no such dead letter, so a repeat does nothing. {-10} something else lies under
-- a key. Complexity: O(log entries).

if #KEYS ~= 2 or #ARGV ~= 1 or not stream(KEYS[1]) or not stream(KEYS[2]) then
    return {-10}
end
local e = redis.pcall('XRANGE', KEYS[2], ARGV[1], ARGV[1])
if broken(e) or not e[1] then
    return {0}
end
local fields = {}
for i = 1, #e[1][2], 2 do
    if string.sub(e[1][2][i], 1, 5) ~= 'dead_' then
        fields[#fields + 1] = e[1][2][i]
        fields[#fields + 1] = e[1][2][i + 1]
    end
end
if #fields == 0 then
    return {0}
end
local id = redis.call('XADD', KEYS[1], '*', unpack(fields))
keep(KEYS[1])
redis.call('XDEL', KEYS[2], ARGV[1])
return {1, id}
