-- Between common.lua and the scripts that end units. KEYS[1] is the hold, KEYS[2] the request, KEYS[3] the deadlines,
-- KEYS[4] the switch; ARGV[1] to ARGV[8] are as those scripts say.

-- placed returns the script's answer if the item lies or is limited otherwise than the caller thinks.
local function placed()
    local switch = redis.pcall('HMGET', KEYS[4], 'layout', ARGV[6])
    if broken(switch) then
        return {-10, 'stored', 'switch'}
    end
    if switch[1] and ARGV[8] ~= '' and switch[1] ~= ARGV[8] then
        return {-20, 1, '', switch[1]}
    end
    if switch[2] and ARGV[7] ~= '' then
        local scope = string.match(switch[2], '^%d+ %d+ %d+ %d+ (%d) %d+$')
        if not scope then
            return {-10, 'stored', 'switch'}
        end
        if scope ~= ARGV[7] then
            return {-20, 1, scope, switch[1] or ''}
        end
    end
end

-- find returns the number of the key that proves what is held, and what it says; or nil and the script's answer.
local function find()
    if ARGV[1] == '' or ARGV[2] == '' or ARGV[3] == '' then
        return nil, {-10, 'argument', 'id'}
    end
    local hold = redis.pcall('HMGET', KEYS[1], 'taken', 'confirmed', 'released', 'op:' .. ARGV[5], 'trace', 'what', 'request')
    if broken(hold) or not hold[1] and redis.call('EXISTS', KEYS[1]) == 1 then
        return nil, {-10, 'stored', 'hold'}
    end
    local record = redis.pcall('HMGET', KEYS[2], 'taken', 'confirmed', 'released', 'op:' .. ARGV[5], 'state', 'what', 'order')
    if broken(record) then
        return nil, {-10, 'stored', 'request record'}
    end
    local kind = redis.call('TYPE', KEYS[3]).ok
    if kind ~= 'none' and kind ~= 'zset' then
        return nil, {-10, 'stored', 'deadlines'}
    end
    local proves
    if record[1] or record[6] and not record[5] then
        proves = string.match(record[1] or '', '^%d+ %d+ ([01])$')
        if not proves or not record[6] or not record[7] then
            return nil, {-10, 'stored', 'request record'}
        end
    end
    if hold[1] and not (string.find(hold[1], HOLD) and hold[6] and hold[7]) then
        return nil, {-10, 'stored', 'hold'}
    end
    local mine = proves and record[7] == ARGV[1] and record[5] ~= 'undone'
    local p, from = 1, hold
    if not hold[1] then
        if not mine or proves ~= '1' then
            return nil, {0, 0}
        end
        p, from = 2, record
    elseif hold[7] ~= ARGV[2] then
        return nil, {-5, 0}
    end
    if from[6] ~= ARGV[3] then
        return nil, {-5, 0}
    end
    local proof = {
        units = int(string.match(from[6], ':(%d+)$')), confirmed = int(from[2] or '0'), released = int(from[3] or '0'),
        op = ARGV[5] ~= '' and from[4], record = mine, trace = hold[5] or '',
    }
    if not proof.units or not proof.confirmed or not proof.released or proof.confirmed + proof.released > proof.units then
        return nil, {-10, 'stored', p == 1 and 'hold' or 'request record'}
    end
    return p, proof
end

-- judge returns how many units to end, or nil and the script's answer. way is confirmed or released.
local function judge(proof, way)
    local asked = ARGV[4] ~= '' and int(ARGV[4])
    if ARGV[4] ~= '' and (not asked or asked < 1 or ARGV[5] == '') then
        return nil, {-10, 'argument', 'units'}
    end
    if proof.op then
        local how, units, gone = string.match(proof.op, '^(%l+) (%d+) ?(1?)$')
        if how ~= way or asked and asked ~= int(units) then
            return nil, {-5, 0}
        end
        return nil, {1, int(units), gone == '1' and 1 or 0, proof.trace}
    end
    local open = proof.units - proof.confirmed - proof.released
    if open == 0 then
        if proof[way] > 0 then
            return nil, {2, proof[way], 0, proof.trace}
        end
        return nil, {3, 0, 0, proof.trace}
    end
    if asked and asked > open then
        return nil, {-10, 'argument', 'units: more than are open'}
    end
    return asked or open
end

-- finish writes that units have ended one way; gone is 1 if the counter was gone. p and proof are what find has returned.
local function finish(p, proof, way, units, gone)
    proof[way] = proof[way] + units
    redis.call('HSET', KEYS[p], way, digits(proof[way]))
    if ARGV[5] ~= '' then
        redis.call('HSET', KEYS[p], 'op:' .. ARGV[5], way .. ' ' .. digits(units) .. (gone == 1 and ' 1' or ''))
    end
    if proof.confirmed + proof.released == proof.units then
        redis.call('ZREM', KEYS[3], ARGV[1])
        if proof.record then
            redis.call('HSET', KEYS[2], 'state', proof.confirmed > 0 and 'confirmed' or 'released')
        end
    end
end
