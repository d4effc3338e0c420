-- Second step of a transfer: gives the units to the other segment, once.
--
-- KEYS  1 counter    2 switch    3 the transfer, on this side
-- ARGV  1 units    2 when the other side may forget the transfer, Unix milliseconds: this side remembers a day longer
--
-- Returns {1} given, now or before, or from a sale before the one that the counter was made for. {-1} no counter: the transfer stays open. {-10, 'argument' or 'stored', what}.
-- Everything is checked before the first write. Complexity: O(1).

local units, expires = int(ARGV[1]), int(ARGV[2])
if #KEYS ~= 3 or #ARGV ~= 2 or not units or units < 1 or not expires then
    return {-10, 'argument', 'number of arguments'}
end
local kind = redis.call('TYPE', KEYS[3]).ok
if kind == 'hash' then
    return {1}
end
local left = redis.pcall('GET', KEYS[1])
if broken(left) or left and (not int(left) or int(left) + units > MAX) then
    return {-10, 'stored', 'counter'}
end
local switch = redis.pcall('HMGET', KEYS[2], 'returns', 'anew')
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
local returns, anew = switch[1], switch[2]
if returns and not int(returns) or anew and not int(anew) then
    return {-10, 'stored', 'switch'}
end
if kind ~= 'none' then
    return {-10, 'stored', 'transfer'}
end
if not left or not returns then
    return {-1}
end
if anew and expires <= int(anew) + DAY then
    return {1} -- SQL's stock, from which the new sale was warmed up, has its units already
end

redis.call('INCRBY', KEYS[1], digits(units))
redis.call('HSET', KEYS[2], 'returns', digits(int(returns) + 1))
redis.call('HSET', KEYS[3], 'units', ARGV[1], 'state', 'given')
redis.call('PEXPIREAT', KEYS[3], digits(expires + DAY))
return {1}
