-- Releases a lock regardless of its owner, and wakes the waiters; or only if it is held as somebody has seen it.
-- KEYS: lock
-- ARGV: channel, how to publish; with a condition also: fencing counter, the newest token or '', owners
-- Returns {1}: it was held. {2}: it was held, but the user is not allowed to publish the message. {0}: it was free, or is
-- held otherwise. {3, mode}: the key is not a lock.
local owners = ARGV[3] and seen_owners(5)
local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return {0}
end
if kind == 'string' then
  local free, other = number_at(KEYS[1])
  if free then
    local out = named('', KEYS[1]) .. ':timeout'
    if owners and not are_out_by(out, permit_time(), owners) then
      return {0}
    end
    local back = take_back(KEYS[1], out, redis.call('zrange', out, 0, -1))
    if back == 0 then
      return {0}
    end
    return {tell_permits(KEYS[1], ARGV[2]) and 2 or 1}
  end
  if other.err then
    return other
  end
end
if kind ~= 'hash' then
  return redis.error_reply('WRONGTYPE the key is a ' .. kind .. ' and no lock')
end
if owners and not is_held_by(KEYS[1], owners) then
  return {0}
end
if owners and ARGV[4] ~= '' and redis.pcall('get', ARGV[3]) ~= ARGV[4] then
  return {0}
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode then
  -- If the former holders left only the field `mode`, the lock is free already.
  if look_after_others(KEYS[1], ARGV[2], false) then
    return {0}
  end
  if mode ~= 'read' and mode ~= 'write' or redis.call('pttl', KEYS[1]) == -1 then
    return {3, string.sub(mode, 1, 64)}
  end
  local fields = redis.call('hgetall', KEYS[1])
  for i = 1, #fields, 2 do
    for n = math.min(tonumber(fields[i + 1]) or 0, 1000), 1, -1 do
      redis.call('del', hold_key(KEYS[1], fields[i], n))
    end
  end
end
redis.call('del', KEYS[1])
local _, _, muted = tell(ARGV[1], ARGV[2])
if mode then
  tell_sides(KEYS[1], ARGV[2])
end
look_after_others(KEYS[1], ARGV[2], true)
return {muted and 2 or 1}
