-- look: what an operator sees of a record.
--
-- KEYS[1]  the record
--
-- Returns  {} where there is nothing, else
--          {v, st, att, lease, to, tp, code, omit, born: each as stored or ''; size of the data, rest of its life in ms,
--           the server's time in ms}
--
-- Something that is no hash has only empty fields. Writes nothing. O(1).

local key = KEYS[1]
local life = redis.call('PTTL', key)
if life == -2 then return {} end

local r = redis.pcall('HMGET', key, 'v', 'st', 'att', 'lease', 'to', 'tp', 'code', 'omit', 'born')
local size = 0
if r.err then
  if not string.find(r.err, 'WRONGTYPE', 1, true) then return redis.error_reply(r.err) end
  r = {}
else
  size = redis.call('HSTRLEN', key, 'res')
end
local t = redis.call('TIME')
local answer = {}
for i = 1, 9 do answer[i] = r[i] or '' end
answer[10], answer[11], answer[12] = size, life, t[1] * 1000 + math.floor(t[2] / 1000)
return answer
