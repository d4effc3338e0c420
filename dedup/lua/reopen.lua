-- reopen: by an operator, in whatever state the record is but at work. It is as if the last attempt had failed: the same
-- request may run again, as the next attempt; an owner who is late after all is refused.
--
-- KEYS[1]  the record
--
-- Returns  1 reopened, or it had failed already   0 there is no record   -1 it is running and its lease is alive
--          -2 not a record
--
-- Sent twice it answers the same. O(1), and the size of the data.

local key = KEYS[1]

local r = redis.pcall('HMGET', key, 'v', 'st', 'lease')
if r.err then
  if string.find(r.err, 'WRONGTYPE', 1, true) then return -2 end
  return redis.error_reply(r.err)
end
if not r[1] and not r[2] and redis.call('EXISTS', key) == 0 then return 0 end
local lease = tonumber(r[3] or '')
if r[1] ~= '1' or not lease or (r[2] ~= 'running' and r[2] ~= 'failed' and r[2] ~= 'done') then return -2 end

local t = redis.call('TIME')
if r[2] == 'running' and lease > t[1] * 1000 + math.floor(t[2] / 1000) then return -1 end
redis.call('HSET', key, 'st', 'failed', 'lease', '0')
redis.call('HDEL', key, 'code', 'omit', 'res')
return 1
