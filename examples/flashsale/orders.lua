-- Load from wrk for the shop that `go run ./examples/flashsale -units 200` serves. Every request is from another user; the
-- same start value sends the same ones:
--
--   wrk -t8 -c500 -d30s -s examples/flashsale/orders.lua http://localhost:8080/items/1001/orders -- 1
--
-- Refusals are answers: what wrk calls "Non-2xx" is mostly 409, sold out.
local threads = {}

function setup(thread)
   thread:set("number", #threads)
   table.insert(threads, thread)
end

function init(args)
   seed = args[1] or "1"
   sent, sold, refused, odd = 0, 0, 0, 0
end

function request()
   sent = sent + 1
   return wrk.format("POST", nil, {
      ["X-User"] = string.format("%d", number * 1e9 + sent),
      ["Idempotency-Key"] = string.format("%s-%d-%d", seed, number, sent),
   })
end

function response(status)
   if status == 201 or status == 202 then
      sold = sold + 1
   elseif status == 409 then
      refused = refused + 1
   else
      odd = odd + 1
   end
end

function done()
   local sum = { sold = 0, refused = 0, odd = 0 }
   for _, thread in ipairs(threads) do
      for name in pairs(sum) do
         sum[name] = sum[name] + thread:get(name)
      end
   end
   print(string.format("%d sold, %d refused, %d other answers", sum.sold, sum.refused, sum.odd))
end
