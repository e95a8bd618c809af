-- Looks after Redisson's other kinds of lock at a key that was freed, and their waiters. The scripts that free a lock call it
-- only where such a key exists, which is rare.
-- Answers whether the key held only what a read-write lock had left.
local function look_after_others(key, how)
  -- In each form that somebody may listen to.
  local function say(channel, payload)
    if how ~= 'publish' then
      redis.pcall('spublish', channel, payload)
    end
    redis.pcall('publish', channel, payload)
  end
  local swept = sweep(key)
  if swept then
    say(named('redisson_lock__channel:', key), '0')
    say(named('redisson_rwlock:', key), '1')
  end
  return swept
end
