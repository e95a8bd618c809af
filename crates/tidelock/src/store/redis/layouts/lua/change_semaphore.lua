-- Changes the permits of a counting semaphore, and wakes its waiters if it has more then. The effects are those of
-- RSemaphore.
-- KEYS: semaphore, answer to this request, answers to forget
-- ARGV: 'new', 'add', 'take', 'back', 'drain' or 'undo'; the number; channel; how to publish; milliseconds the answer stays
-- Returns {0, 1 if it was changed, number}: how many permits were taken, or how many there are now. A third number: the
-- user is not allowed to publish the message. {7, what it is}: the key is no semaphore.
forget(3)
local what, more, back = ARGV[1], tonumber(ARGV[2]), 0
-- Takes back as many as the request needs: for a drain all.
local function take_back_dead()
  local out, now, rest = permits_out(KEYS[1]), permit_time(), true
  while rest and (what == 'drain' or number_at(KEYS[1]) < more) do
    local ended
    ended, rest = take_back_ended(KEYS[1], out, now)
    back = back + ended
  end
end
local known = answered(KEYS[2])
if known and what ~= 'undo' then
  return known
end
local free, other = number_at(KEYS[1])
if what == 'undo' then
  more = known and known[2] == 1 and known[3] or 0
  -- A server whose memory is full allows DEL, and lets a script that has written go on. Otherwise the permits that were taken would
  -- be lost. What follows needs no memory for long.
  redis.pcall('del', KEYS[2])
  -- A semaphore that was deleted has taken its permits along.
  if free and more > 0 then
    local done = redis.pcall('decrby', KEYS[1], 0 - more)
    if type(done) == 'table' and done.err then
      redis.call('set', KEYS[2], '1 ' .. string.format('%.0f', more), 'px', ARGV[5]) -- a repeated request must find it
      return done
    end
  end
  -- From here on, a late request with this id takes nothing.
  redis.call('set', KEYS[2], '0 0', 'px', ARGV[5])
elseif other then
  return other
else
  if free and (what == 'drain' or what == 'take' and free < more) then
    -- A semaphore with holders may share the number. Without a request of that one, nobody else would take back the permits of
    -- its holders whose lease has ended. A user of counting semaphores only may lack the rights for it.
    pcall(take_back_dead)
    free = number_at(KEYS[1])
  end
  local number = (free or 0) + more
  if what == 'drain' then
    more = math.max(free or 0, 0)
  end
  if what == 'take' or what == 'drain' then
    more, number = 0 - more, more
  end
  if what == 'new' and free or what == 'take' and (free or 0) < number or what == 'drain' and number == 0 then
    if back > 0 then
      tell_permits(KEYS[1], ARGV[4]) -- there are too few for this caller, but perhaps not for others
    end
    return {0, 0, free or 0}
  end
  -- 0 - more: a script writes the negative of 0 as -0, which is no number to Redis.
  redis.call('decrby', KEYS[1], 0 - more)
  local noted = redis.pcall('set', KEYS[2], '1 ' .. string.format('%.0f', number), 'px', ARGV[5])
  if noted.err then
    redis.call('decrby', KEYS[1], more) -- a repeated request would take effect twice
    return noted
  end
  known = {0, 1, number}
end
free = number_at(KEYS[1]) or 0
local answer = what == 'undo' and {0, more > 0 and 1 or 0, more} or known
-- A waiter of Redisson fails if it gets a negative number.
if (more > 0 or back > 0) and free > 0 and tell_all(ARGV[3], string.format('%.0f', free), ARGV[4]) then
  answer[4] = 1
end
return answer
