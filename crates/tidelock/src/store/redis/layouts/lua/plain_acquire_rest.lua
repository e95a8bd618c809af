-- The rest of the script that acquires a plain lock: it is fenced, or the key or the tombstone exists.
if present > 0 and redis.call('exists', tombstone) == 1 then
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
  -- No more than tells whether it is an owner of tidelock. Another program may keep a document there, and the client ends its
  -- connection at an answer of many megabytes.
  return {0, left, string.sub(own, 1, 129)}
end
-- A repeated request whose reply was lost. It must not shorten the lease. It writes in any case, because a later
-- `WAIT` covers only writes of its own connection.
if left ~= -1 then
  redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1])))
end
-- Only a holder increments the counter, so it still has the token of this owner.
return {1, KEYS[3] and (redis.call('get', KEYS[3]) or redis.call('incr', KEYS[3])) or 0}
