-- Moves an entry to the dead letters.
--
-- KEYS  1 stream    2 its dead letters
-- ARGV  1 group    2 entry's id    3 type of the error    4 its text    5 tries
--
-- Returns {1, id among the dead letters}; {0} the entry is not there: it has landed, or was moved before. {-10} something else
-- lies under a key. The fields stay as they are, and dead_type, dead_error, dead_tries, dead_entry are added.
-- Complexity: O(log entries).

if #KEYS ~= 2 or #ARGV ~= 5 or not stream(KEYS[1]) or not stream(KEYS[2]) then
    return {-10}
end
local e = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
if not e then
    redis.pcall('XACK', KEYS[1], ARGV[1], ARGV[2])
    return {0}
end
local fields = e[2]
for i, name in ipairs({'dead_type', 'dead_error', 'dead_tries', 'dead_entry'}) do
    fields[#fields + 1] = name
    fields[#fields + 1] = ({ARGV[3], ARGV[4], ARGV[5], ARGV[2]})[i]
end
local id = redis.call('XADD', KEYS[2], '*', unpack(fields))
keep(KEYS[2])
redis.pcall('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return {1, id}
