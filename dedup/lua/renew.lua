-- renew: a new lease for the owner.
--
-- KEYS[1]  the record
-- ARGV     1 token   2 lease in ms, from now
--
-- Returns  1 renewed   0 there is no record   -1 not running under this token   -2 not a record
--
-- A lease that has lapsed is renewed too, as long as nobody has taken over. A record is never created. O(1).

local key, token, lease = KEYS[1], ARGV[1], ARGV[2]

if #KEYS ~= 1 or #ARGV ~= 2 or token == '' or #lease > 15 or not string.find(lease, '^%d+$') or tonumber(lease) < 1 then
  return redis.error_reply('ERR holdfast renew: bad arguments')
end

local r = redis.pcall('HMGET', key, 'v', 'st', 'tok')
if r.err then
  if string.find(r.err, 'WRONGTYPE', 1, true) then return -2 end
  return redis.error_reply(r.err)
end
if not r[1] and not r[2] and redis.call('EXISTS', key) == 0 then return 0 end
if r[1] ~= '1' then return -2 end
if r[2] ~= 'running' or r[3] ~= token then return -1 end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', key, 'lease', string.format('%.0f', now + tonumber(lease)))
return 1
