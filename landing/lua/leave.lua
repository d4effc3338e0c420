-- A consumer leaves: what it has not finished can be taken by another one at once, and its last try does not count.
--
-- KEYS  1 stream
-- ARGV  1 group    2 consumer    3 milliseconds after which an entry is taken from another consumer    4 id behind which to begin
--
-- Returns {0, how many entries it leaves behind, id behind which there may be more or ''}; {-10} something else lies under the
-- key. A call hands over at most 1000. A consumer that leaves nothing is removed. Complexity: O(entries * log pending).

if #KEYS ~= 1 or #ARGV ~= 4 or not stream(KEYS[1]) then
    return {-10}
end
local left = redis.pcall('XPENDING', KEYS[1], ARGV[1], '(' .. ARGV[4], '+', '1000', ARGV[2])
if broken(left) then
    return {0, 0, ''}
end
for _, e in ipairs(left) do
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], '0', e[1], 'IDLE', ARGV[3], 'RETRYCOUNT', tostring(math.max(0, e[4] - 1)), 'JUSTID')
end
if #left == 0 and ARGV[4] == '0-0' then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return {0, #left, #left == 1000 and left[1000][1] or ''}
