-- Cleans up after Redisson's other kinds of lock under a key that was released, and wakes their waiters. The scripts
-- that release a lock call it only if such a key exists, which is rare.
-- `freed`: a hold has just ended. Returns whether the key had only the remains of a read-write lock, and how many
-- clients other than tidelock received the message that the fair lock may be free.
local function look_after_others(key, how, freed)
  local swept = sweep(key)
  if swept then
    tell(named('redisson_lock__channel:', key), how)
    tell_sides(key, how)
  end
  if not (freed or swept) or redis.pcall('exists', key) == 1 then
    return swept, 0
  end
  -- A waiter for a fair lock does not listen to the channel of the lock.
  local _, heard = hand_over(key, how, nil, false)
  return swept, heard
end
