-- Between common.lua and the two scripts that end units, confirm.lua and release.lua.
-- KEYS[1] is the hold, KEYS[2] the request; ARGV[1] to ARGV[5] are as both scripts say.

-- find returns the number of the key that proves what is held, and what it says; or nil and the script's answer.
local function find()
    if ARGV[1] == '' or ARGV[2] == '' or ARGV[3] == '' then
        return nil, {-10, 'argument', 'id'}
    end
    local hold = redis.pcall('HMGET', KEYS[1], 'what', 'confirmed', 'released', 'op:' .. ARGV[5], 'request')
    if broken(hold) then
        return nil, {-10, 'stored', 'hold'}
    end
    local record = redis.pcall('HMGET', KEYS[2], 'what', 'confirmed', 'released', 'op:' .. ARGV[5], 'order', 'state')
    if broken(record) then
        return nil, {-10, 'stored', 'request record'}
    end
    local mine = record[5] == ARGV[1]
    local p, from = 1, hold
    if not hold[1] then
        if not mine or not record[3] then
            return nil, {0, 0}
        end
        p, from = 2, record
    elseif hold[5] ~= ARGV[2] then
        return nil, {-5, 0}
    end
    if from[1] ~= ARGV[3] then
        return nil, {-5, 0}
    end
    local proof = {
        units = int(string.match(from[1], ':(%d+)$')), confirmed = int(from[2]), released = int(from[3]),
        op = ARGV[5] ~= '' and from[4], record = mine,
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
        local how, units = string.match(proof.op, '^(%l+) (%d+)$')
        if how ~= way or asked and asked ~= int(units) then
            return nil, {-5, 0}
        end
        return nil, {1, int(units), 0}
    end
    local open = proof.units - proof.confirmed - proof.released
    if open == 0 then
        if proof[way] > 0 then
            return nil, {2, proof[way], 0}
        end
        return nil, {3, 0, 0}
    end
    if asked and asked > open then
        return nil, {-10, 'argument', 'units: more than are open'}
    end
    return asked or open
end
