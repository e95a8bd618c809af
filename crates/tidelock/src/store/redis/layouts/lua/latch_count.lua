-- Reads the count of a latch.
-- KEYS: latch, permits that are out if it is a semaphore
-- Returns {0, count}. {7, what it is}: the key is no latch.
local count, other = latch_at(KEYS[1], KEYS[2])
if other then
  return other
end
return {0, math.max(count or 0, 0)}
