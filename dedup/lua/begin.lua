-- begin: may this request run, or what is the answer to it?
--
-- KEYS[1]  the record
-- ARGV     1 token of the caller        2 fingerprint, '' for none
--          3 lease in ms                4 life of the record in ms
--          5 '1': a lapsed record is not taken over
--          6 traceparent, '' for none
--
-- Returns  {1, attempt, takeover (0 or 1), traceparent of the first execution}   run
--          {2, attempt, code, omitted (0 or 1), traceparent, data}               replay
--          {3}                                                                   mismatch
--          {4, rest of the lease in ms, attempt, traceparent}                    in flight
--          {5, attempt, traceparent}                                             interrupted
--          {6, state, code}                                                      corrupt, both as stored
--
-- Sent twice with one token it answers "run" twice, with the same attempt and a fresh lease. Everything is checked
-- before the first write. O(1), and the size of the data for a replay.

local key, token, fp, lease, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if #KEYS ~= 1 or #ARGV ~= 6 or token == '' or #lease > 15 or #ttl > 15
  or not string.find(lease, '^[1-9]%d*$') or not string.find(ttl, '^[1-9]%d*$') then
  return redis.error_reply('ERR holdfast begin: bad arguments')
end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function run(attempt, takeover, first, born)
  redis.call('HSET', key, 'v', '1', 'st', 'running', 'tok', token, 'att', string.format('%.0f', attempt), 'fp', fp,
    'lease', string.format('%.0f', now + lease), 'to', takeover, 'tp', first, 'born', born)
  redis.call('PEXPIRE', key, ttl)
  return {1, attempt, tonumber(takeover), first}
end

if redis.call('EXISTS', key) == 0 then return run(1, '0', ARGV[6], string.format('%.0f', now)) end

local r = redis.pcall('HMGET', key, 'v', 'st', 'tok', 'att', 'fp', 'lease', 'to', 'tp', 'born', 'code', 'omit', 'res')
if r.err then
  if string.find(r.err, 'WRONGTYPE', 1, true) then return {6, '', ''} end
  return redis.error_reply(r.err)
end
local v, st, owner, att, had, deadline, took, tp, born = r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9]
local code, omitted, data = r[10], r[11], r[12]

local function whole(s) return s and #s <= 15 and string.find(s, '^%d+$') and tonumber(s) end
local sound = v == '1' and owner and had and tp and born and (took == '0' or took == '1') and whole(deadline)
  and (whole(att) or 0) >= 1
  and (st == 'running' or st == 'failed' or (st == 'done' and whole(code) and (omitted == '0' or omitted == '1') and data))
if not sound then return {6, st or '', code or ''} end

att, deadline = tonumber(att), tonumber(deadline)
if had ~= '' then
  if fp ~= '' and had ~= fp then return {3} end
  fp = had
end

if st == 'done' then return {2, att, tonumber(code), tonumber(omitted), tp, data} end

if owner == token then
  -- A begin that was under way for so long that its caller has given up must not start anything.
  if st == 'failed' then return {4, 0, att, tp} end
  return run(att, took, tp, born)
end

if st == 'failed' then return run(att + 1, '0', tp, born) end
if deadline > now then return {4, deadline - now, att, tp} end
if ARGV[5] == '1' then return {5, att, tp} end
return run(att + 1, '1', tp, born)
