-- What the scripts of latches need. The key of a latch is the number of times it is still to be counted down; an open
-- latch has no key.

-- The count of a latch, or nil if it is open. Otherwise also what the key is instead of a latch. A semaphore is a number
-- too, and is recognised by its permits that are out.
local function latch_at(key, out)
  local count, other = number_at(key)
  if not other and redis.pcall('exists', out) == 1 then
    return nil, {7, 'a semaphore'}
  end
  return count, other
end
