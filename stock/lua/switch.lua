-- Turns an item's sale on and off. A pause is remembered in a field of its own: it lasts until it is resumed, whatever is
-- frozen and thawed meanwhile.
--
-- KEYS  1 switch
-- ARGV  1 pause, resume, freeze or thaw    of a thaw: 2 operation id    3 operator    4 state and units withheld as they must
--       be, empty: no matter how
--
-- Returns {1, state, units}: done, or it was so before; units are those that a thaw has booked as withdrawn.
-- {0, state}: frozen, and only a thaw ends that. {-1} no switch. {-5} the operation id belongs to something else;
-- {-5, 1} it is not as it must be.
-- {-10, 'argument' or 'stored', what}. Everything is checked before the first write. Complexity: O(1).

local action, op = ARGV[1], 'op:' .. (ARGV[2] or '')
local states = {pause = 'paused', resume = 'open', freeze = 'frozen'}
if #KEYS ~= 1 or #ARGV ~= 4 or not states[action] and (action ~= 'thaw' or ARGV[2] == '') then
    return {-10, 'argument', 'action'}
end
local switch = redis.pcall('HMGET', KEYS[1], 'state', 'withheld', 'withdrawn', op, 'paused')
if broken(switch) then
    return {-10, 'stored', 'switch'}
end
local state, withheld, withdrawn = switch[1], int(switch[2]), int(switch[3])
if not state then
    return {-1}
end
if not withheld or not withdrawn or withdrawn + withheld > MAX then
    return {-10, 'stored', 'switch'}
end
if action == 'thaw' then
    if switch[4] then
        local units = string.match(switch[4], '^thaw (%d+) ')
        if not units then
            return {-5}
        end
        return {1, state, units}
    end
    if ARGV[4] ~= '' and ARGV[4] ~= state .. ' ' .. switch[2] then
        return {-5, 1}
    end
    if state == 'frozen' then
        state = switch[5] and 'paused' or 'open'
    end
    redis.call('HSET', KEYS[1], 'state', state, 'withheld', '0',
        'withdrawn', digits(withdrawn + withheld), op, 'thaw ' .. digits(withheld) .. ' ' .. digits(clock()) .. ' ' .. ARGV[3])
    return {1, state, digits(withheld)}
end
if state == 'frozen' and action == 'resume' then
    return {0, state, '0'}
end
if action == 'pause' then
    redis.call('HSET', KEYS[1], 'paused', '1')
elseif action == 'resume' then
    redis.call('HDEL', KEYS[1], 'paused')
end
if state ~= 'frozen' then
    state = states[action]
    redis.call('HSET', KEYS[1], 'state', state)
end
return {1, state, '0'}
