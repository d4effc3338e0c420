-- Reads dead letters.
--
-- KEYS  1 dead letters
-- ARGV  1 first id, '-' for the oldest    2 last id, '+' for the newest    3 most to read
--
-- Returns {0, how many there are, entry...}; an entry is {id, field, value...}. {-10} something else lies under the key, or
-- an id is none. It writes nothing. Complexity: O(log entries + most).

if #KEYS ~= 1 or #ARGV ~= 3 or not stream(KEYS[1]) then
    return {-10}
end
local found = redis.pcall('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
if broken(found) then
    return {-10}
end
local reply = {0, redis.call('XLEN', KEYS[1])}
for _, e in ipairs(found) do
    local entry = {e[1]}
    for i = 1, #e[2] do
        entry[#entry + 1] = e[2][i]
    end
    reply[#reply + 1] = entry
end
return reply
