-- Counts tries of entries, and keeps the entries with their consumer.
--
-- KEYS  1 stream
-- ARGV  1 group    2 consumer    then for each entry its id, and how many tries it has by now, 0 if that is not to change
--
-- Returns {0, tries...}, 0 for an entry that is no longer pending: somebody has finished it. {-10} something else lies under
-- the key. Tries are at least 1, the one under way, and never become fewer, so a repeat changes nothing. Complexity: O(entries * log pending).

if #KEYS ~= 1 or #ARGV < 4 or #ARGV % 2 ~= 0 or not stream(KEYS[1]) then
    return {-10}
end
local reply = {0}
for i = 3, #ARGV, 2 do
    local n = tries(KEYS[1], ARGV[1], ARGV[i])
    if n then
        n = math.max(1, n, tonumber(ARGV[i + 1]) or 0)
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], '0', ARGV[i], 'RETRYCOUNT', tostring(n), 'JUSTID')
    end
    reply[#reply + 1] = n or 0
end
return reply
