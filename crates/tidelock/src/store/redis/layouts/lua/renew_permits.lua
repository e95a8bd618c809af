-- Renews permits of semaphores. Each acquisition is handled separately: an error of one key does not affect the others.
-- KEYS: semaphores; then for each the permits that are out
-- ARGV: for each acquisition its lease in milliseconds, and what its ids begin with and their number
-- Returns a list: 1 renewed, 0 not all held by this owner, 2 the key is no semaphore any more, or the text of an error.
local function renew(key, out, lease, owner)
  local now, ids = permit_time(), permit_ids(owner)
  local free, other = number_at(key)
  if other then
    return other[1] and 2 or other
  end
  -- Without the key somebody may set its number again, and then these permits are too many.
  local held = free and held_permits(out, ids, now) == #ids
  -- This removes nothing. A server that has become a replica may not have the permits yet, and refuses it. A server whose
  -- memory is full allows it, and then lets the script go on; it would refuse a script that begins with ZADD.
  local gone = redis.pcall('zrem', out, '')
  if type(gone) == 'table' then
    return gone
  end
  if not held then
    return 0
  end
  -- Never shorten the lease. Write in any case, because a later `WAIT` covers only writes of its own connection. `now` is
  -- rounded down; without the 1 the lease could end before its holder expects it.
  local ends = now + lease + 1
  for _, id in ipairs(ids) do
    local set = redis.pcall('zadd', out, 'XX', math.max(ends, redis.call('zscore', out, id) + 1), id)
    if type(set) == 'table' then
      return set
    end
  end
  return 1
end
local answers = {}
for i = 1, #KEYS / 2 do
  -- An error that `renew` does not expect is a string on older servers, and a table on newer ones.
  local _, answer = pcall(renew, KEYS[i], KEYS[#KEYS / 2 + i], ARGV[2 * i - 1], ARGV[2 * i])
  answers[i] = type(answer) == 'table' and answer.err or answer
end
return answers
