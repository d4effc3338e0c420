-- fail: the owner gives up after work that may have had an effect. The same request may run again at once, as the next
-- attempt; fingerprint, attempt and life of the record stay.
--
-- KEYS[1]  the record
-- ARGV     1 token
--
-- Returns  1 failed   0 there is no record   -1 another's, or done   -2 not a record
--
-- Sent twice it answers the same. O(1).

local key, token = KEYS[1], ARGV[1]

if #KEYS ~= 1 or #ARGV ~= 1 or token == '' then return redis.error_reply('ERR holdfast fail: bad arguments') end

local r = redis.pcall('HMGET', key, 'v', 'st', 'tok')
if r.err then
  if string.find(r.err, 'WRONGTYPE', 1, true) then return -2 end
  return redis.error_reply(r.err)
end
if not r[1] and not r[2] and redis.call('EXISTS', key) == 0 then return 0 end
if r[1] ~= '1' then return -2 end
if r[3] ~= token or r[2] == 'done' then return -1 end
redis.call('HSET', key, 'st', 'failed', 'lease', '0')
return 1
