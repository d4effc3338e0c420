-- forget: the owner has done nothing. A first attempt leaves no record; a later one leaves the record as failed, since
-- what an earlier attempt did is still unknown.
--
-- KEYS[1]  the record
-- ARGV     1 token
--
-- Returns  1 forgotten   0 there is no record   -1 another's, or done   -2 not a record
--
-- Sent twice it answers 1 and then 0 or 1, and the second call changes nothing. O(1).

local key, token = KEYS[1], ARGV[1]

if #KEYS ~= 1 or #ARGV ~= 1 or token == '' then return redis.error_reply('ERR holdfast forget: bad arguments') end

local r = redis.pcall('HMGET', key, 'v', 'st', 'tok', 'att')
if r.err then
  if string.find(r.err, 'WRONGTYPE', 1, true) then return -2 end
  return redis.error_reply(r.err)
end
if not r[1] and not r[2] and redis.call('EXISTS', key) == 0 then return 0 end
if r[1] ~= '1' then return -2 end
if r[3] ~= token or r[2] == 'done' then return -1 end
if r[2] == 'failed' then return 1 end
if r[4] == '1' then
  redis.call('DEL', key)
else
  redis.call('HSET', key, 'st', 'failed', 'lease', '0')
end
return 1
