-- In front of every script of this folder. It touches no key.

local MAX = 9007199254740991 -- 2^53 - 1: above, a Lua number is no longer exact
local HOUR, DAY = 3600000, 86400000

-- int returns the number that v writes in plain digits, 0 to 2^53 - 1, or nil: no sign, no point, no exponent, no
-- leading zero.
local function int(v)
    if v == '1' then -- most numbers are 1 or 0
        return 1
    elseif v == '0' then
        return 0
    end
    if type(v) ~= 'string' or #v > 16 or not string.find(v, '^[1-9]%d*$') then
        return nil
    end
    local n = tonumber(v)
    return n <= MAX and n or nil
end

-- digits writes a whole number, 0 to 2^53, without an exponent. %d is faster than %.0f, and exact up to 2^31 everywhere.
local function digits(n)
    if n == 1 then
        return '1'
    elseif n < 2147483648 then
        return string.format('%d', n)
    end
    return string.format('%d%07d', math.floor(n / 10000000), n % 10000000)
end

-- broken tells whether a reply of redis.pcall is an error: another type lies under the key.
local function broken(reply)
    return type(reply) == 'table' and reply.err ~= nil
end

-- clock returns the server's time in Unix milliseconds.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- tell says on a channel that an item has units again. A server whose access rules refuse the channel must not stop a script
-- between its writes: who did not hear of it finds out a little later.
local function tell(channel, item)
    redis.pcall('PUBLISH', channel, item)
end

-- What an order has taken is told by what it is for and by numbers in one text, the field taken: a text costs less than
-- many fields, to write and to keep; and Redis keeps a hash small only while no value is longer than 64 bytes. Whoever
-- changes such a text gives its field another name: then an older version finds none that it knows, and refuses.
--   request record    what, order,   taken: nth, left, 1 if the record is the proof and 0 if a hold is
--   hold              what, request, taken: nth, at, deadline
--   stream            what, order, request, taken: nth, at
-- Fields that are not there yet: confirmed and released are 0, and state is held.
local RECORD, HOLD = '^(%d+) (%d+) ([01])$', '^(%d+) (%d+) (%d+)$'
