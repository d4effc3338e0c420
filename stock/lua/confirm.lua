-- Ends units of an order for good: they are paid for.
--
-- KEYS  1 hold    2 request    3 deadlines    4 switch
-- ARGV  1 order    2 its request    3 what it is for    4 units, empty: all that are open    5 operation id, may be empty
--       6 field of the activity in the switch    7 empty    8 layout of the item, empty: the caller knows the place
--
-- The hold is the proof that units are held; without one it is the request record, if that was written without a hold.
--
-- Returns {code, units, 0, trace context of the deduct or empty}; the code is
--   1 confirmed by this call, or by an earlier one with this operation id    2 confirmed before    3 released before
--   0 nothing held    -5 the ids belong to something else    -10, 'argument' or 'stored', what
--   -20, 1, empty, layout: the item lies elsewhere
--
-- Everything is checked before the first write. Complexity: O(log holds).

if #KEYS ~= 4 or #ARGV ~= 8 then
    return {-10, 'argument', 'number of arguments'}
end
local elsewhere = placed()
if elsewhere then
    return elsewhere
end
local p, proof = find()
if not p then
    return proof
end
local asked, answer = judge(proof, 'confirmed')
if not asked then
    return answer
end
finish(p, proof, 'confirmed', asked)
return {1, asked, 0, proof.trace}
