-- Counts a try of an entry, or takes one back, and keeps the entry with its consumer.
--
-- KEYS  1 stream
-- ARGV  1 group    2 consumer    3 how many tries to add, 0 or negative to keep or take back    then the entries' ids
--
-- Returns {0, tries...}, 0 for an entry that is no longer pending: somebody has finished it. {-10} something else lies under
-- the key. Complexity: O(entries * log pending).

if #KEYS ~= 1 or #ARGV < 4 or not tonumber(ARGV[3]) or not stream(KEYS[1]) then
    return {-10}
end
local reply = {0}
for i = 4, #ARGV do
    local n = tries(KEYS[1], ARGV[1], ARGV[i])
    if n then
        n = math.max(0, n + tonumber(ARGV[3]))
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], '0', ARGV[i], 'RETRYCOUNT', tostring(n), 'JUSTID')
    end
    reply[#reply + 1] = n or 0
end
return reply
