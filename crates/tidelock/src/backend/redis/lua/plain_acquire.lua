-- Takes a plain lock for one owner, or tells how long it is held. On a free key it does what `SET key owner NX PX ms` does.
-- KEYS: lock, tombstone of this owner, token counter (only for fenced locks)
-- ARGV: lease in milliseconds, owner
-- Answers {1, token or 0}: held by this owner. {0, milliseconds left, -1 without limit}: held by another.
--         {2}: this owner was withdrawn. {3}: the key is no plain lock. {4, value}: the counter gives no token.
if redis.call('exists', KEYS[2]) == 1 then
  return {2}
end
local own = redis.pcall('get', KEYS[1])
if type(own) == 'table' then
  if string.find(own.err, 'WRONGTYPE', 1, true) then
    return {3}
  end
  return own
end
local left = redis.call('pttl', KEYS[1])
if left == -2 then
  local token, refusal = 0, nil
  if KEYS[3] then
    token, refusal = take_tokens(KEYS[3], '1')
    if not token then
      return refusal
    end
  end
  local set = redis.pcall('set', KEYS[1], ARGV[2], 'nx', 'px', ARGV[1])
  if not set or set.err then
    return set
  end
  return {1, token}
end
if own ~= ARGV[2] then
  return {0, left, own}
end
-- A repeat of a request whose answer was lost: it does not shorten what stands. It writes in any case: a `WAIT` behind it
-- speaks only of what its own connection has written.
if left ~= -1 then
  redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1])))
end
-- Only a holder moves the counter, so it still shows the token of this one.
return {1, KEYS[3] and (redis.call('get', KEYS[3]) or redis.call('incr', KEYS[3])) or 0}
