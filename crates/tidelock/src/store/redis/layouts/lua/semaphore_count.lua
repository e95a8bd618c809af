-- Reads how many permits a counting semaphore has. Those count too that a semaphore with holders has given to holders whose
-- lease has ended: the next request that needs them takes them back.
-- KEYS: semaphore
-- Returns {0, number}. {7, what it is}: the key is no semaphore.
local free, other = number_at(KEYS[1])
local function count_ended()
  return redis.call('zcount', permits_out(KEYS[1]), '-inf', permit_time())
end
if other or not free then
  return other or {0, 0}
end
-- A user of counting semaphores only may lack the rights for it.
local done, ended = pcall(count_ended)
return {0, done and free + ended or free}
