-- Prototype, inserted into the release script: grants the free lock to the first waiter that hears its channel.
if own == 1 and others and redis.call('exists', KEYS[1]) == 0 then
  local queue = named('tidelock:waiting_for:', KEYS[1])
  -- With a waiter of Redisson, its turn would be decided here.
  listeners('numsub', channel)
  for _ = 1, 100 do
    local head = redis.call('lpop', queue)
    if not head then
      break
    end
    if redis.call('publish', channel .. ':' .. head, '0') > 0 then
      redis.call('hset', KEYS[1], head, '1')
      redis.call('pexpire', KEYS[1], 6000) -- until it confirms
      return 1
    end
  end
end
