-- Acquires a fair lock for one owner, or queues it. The lock and the queue are those of RFairLock.
-- KEYS: lock, tombstone of this owner, queue, deadlines, living processes, unconfirmed grant, fencing counter (only for
-- fenced locks)
-- ARGV: lease in milliseconds, owner, 'queues' if the caller waits in the queue, 'again' if it had a place already or
-- '', how to publish
-- Returns what the script of a lock without a queue returns:
--   {1, last token or 0, 0}: this owner holds the lock. {0, milliseconds left or -1 without a limit}: it does not. A
--       third element means that Redisson is ahead of the waiter, and publishes its release on the waiter's own channel.
--   {2}: this owner was withdrawn. {3, mode}: the key is another kind of lock. {4, value}: no next token.
if redis.call('exists', KEYS[2]) == 1 then
  return {2}
end
local own = redis.pcall('hget', KEYS[1], ARGV[2])
if type(own) == 'table' then
  return own -- the key is not a hash: return the error
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode and not sweep(KEYS[1]) then
  return {3, string.sub(mode, 1, 64)}
end
local now, takes, place = server_time(), false, nil
if not own then
  local free, length = redis.call('exists', KEYS[1]) == 0, redis.call('llen', KEYS[3])
  takes = free and length == 0
  if not takes and ARGV[3] == 'queues' then
    if not redis.call('zscore', KEYS[4], ARGV[2]) then
      -- An entry that was removed although its owner waits gets the first place again.
      local put = redis.pcall(ARGV[4] == 'again' and 'lpush' or 'rpush', KEYS[3], ARGV[2])
      if type(put) == 'table' then
        return put
      end
      redis.call('zadd', KEYS[4], now + WAIT * (length + 1), ARGV[2])
      place = ARGV[4] == 'again' and 0 or length
    end
    show_alive(KEYS[5], string.sub(ARGV[2], 1, 36), now)
  end
  if free and not takes then
    own = hand_over(KEYS[1], ARGV[5], ARGV[2], true) == ARGV[2]
    place = nil -- others may have been removed
    -- All that were queued may have been dead. A caller that does not wait has no place that the hand-over could find.
    takes = not own and redis.call('exists', KEYS[1]) == 0 and redis.call('llen', KEYS[3]) == 0
  end
  if not takes and not own then
    local answer = {0, redis.call('pttl', KEYS[1])}
    if ARGV[3] == 'queues' then
      place = place or redis.pcall('lpos', KEYS[3], ARGV[2])
      if not place and type(redis.pcall('lpush', KEYS[3], ARGV[2])) == 'number' then
        -- It has a deadline and no entry: somebody has deleted the queue, or its slot moved while the lock was handed over.
        -- Nobody would grant it the lock.
        place = 0
      end
      if type(place) ~= 'number' or follows_redisson(KEYS[1], place) then
        answer[3] = ''
      end
    end
    return answer
  end
end
local confirms = not takes and redis.call('get', KEYS[6]) == ARGV[2]
if not takes and not confirms then
  -- A repeated request whose reply was lost. It must neither count twice nor shorten the lease.
  local left = redis.call('pttl', KEYS[1])
  if left ~= -1 then
    redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[1])))
  end
  return {1, KEYS[7] and (redis.call('get', KEYS[7]) or redis.call('incr', KEYS[7])) or 0, 0}
end
-- Before the token: a server whose memory is full allows ZREM, and then lets the script go on. It would refuse one that
-- begins with INCR: the grant would end unconfirmed, and the waiter would have no place any more.
if confirms and redis.call('zrem', KEYS[4], ARGV[2]) == 1 then
  redis.call('lrem', KEYS[3], 0, ARGV[2])
end
local token, refusal = 0, nil
if KEYS[7] then
  token, refusal = take_tokens(KEYS[7], '1')
  if not token then
    return refusal
  end
end
if takes then
  redis.call('hset', KEYS[1], ARGV[2], 1)
  -- It may have a deadline without an entry. An error here, as of a key whose slot moves, would leave a lock that never expires.
  redis.pcall('zrem', KEYS[4], ARGV[2])
else
  redis.call('del', KEYS[6])
end
local limited = redis.pcall('pexpire', KEYS[1], ARGV[1])
if type(limited) == 'table' then
  redis.call('hdel', KEYS[1], ARGV[2]) -- otherwise the lock would never expire
  return limited
end
return {1, token, 0}
