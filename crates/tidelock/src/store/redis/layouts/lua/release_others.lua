-- The rest of the script that releases a lock: the key still exists, or Redisson's fair lock has a queue.
local all, ours, muted = 0, 0, false
local mixed = redis.pcall('hexists', KEYS[1], 'mode') == 1
if own == 1 and not mixed and redis.pcall('exists', KEYS[1]) ~= 1 then
  all, ours, muted = tell_lock()
end
local _, more = look_after_others(KEYS[1], how, own == 1)
return released(mixed and own * 4 or nil, all + more, ours, muted)
