-- complete: the result, once and for the life of the record.
--
-- KEYS[1]  the record
-- ARGV     1 token   2 attempt   3 fingerprint, '' for none   4 life of the record in ms, from now
--          5 code    6 '1': data left out on purpose          7 data
--
-- Returns  1 stored   -1 the record is another's, or was given up under this token   -2 not a record
--
-- It does not matter whether the lease has lapsed: as long as nobody has taken over, this is what happened. A record
-- that is gone (evicted, flushed) is written anew, for the same reason. Sent twice it stores the same twice. O(1), and
-- the size of the data.

local key, token, att, fp, ttl, code, omit, data = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local function whole(s) return s and #s <= 15 and string.find(s, '^%d+$') and tonumber(s) end

if #KEYS ~= 1 or #ARGV ~= 7 or token == '' or (whole(att) or 0) < 1 or (whole(ttl) or 0) < 1 or not whole(code)
  or (omit ~= '0' and omit ~= '1') then
  return redis.error_reply('ERR holdfast complete: bad arguments')
end

local r = redis.pcall('HMGET', key, 'v', 'st', 'tok')
if r.err then
  if string.find(r.err, 'WRONGTYPE', 1, true) then return -2 end
  return redis.error_reply(r.err)
end

if not r[1] and not r[2] and redis.call('EXISTS', key) == 0 then
  local t = redis.call('TIME')
  local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
  redis.call('HSET', key, 'v', '1', 'st', 'done', 'tok', token, 'att', att, 'fp', fp, 'lease', '0', 'to', '0', 'tp', '',
    'born', now, 'code', code, 'omit', omit, 'res', data)
  redis.call('PEXPIRE', key, ttl)
  return 1
end

if r[1] ~= '1' then return -2 end
if r[3] ~= token or (r[2] ~= 'running' and r[2] ~= 'done') then return -1 end
redis.call('HSET', key, 'st', 'done', 'lease', '0', 'code', code, 'omit', omit, 'res', data)
redis.call('PEXPIRE', key, ttl)
return 1
