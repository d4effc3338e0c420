-- Reads a sale of tokens.
--
-- KEYS  1 switch    2 list    3 tokens taken
-- ARGV  none
--
-- Returns {0, left, taken}; {-1} not loaded; {-10, 'argument' or 'stored', what}. It writes nothing. Complexity: O(1).

if #KEYS ~= 3 then
    return {-10, 'argument', 'number of keys'}
end
local total = redis.pcall('HGET', KEYS[1], 'total')
if broken(total) then
    return {-10, 'stored', 'switch'}
end
local left, taken = redis.pcall('LLEN', KEYS[2]), redis.pcall('HLEN', KEYS[3])
if broken(left) or broken(taken) then
    return {-10, 'stored', 'list'}
end
if not total then
    return {-1}
end
return {0, left, taken}
