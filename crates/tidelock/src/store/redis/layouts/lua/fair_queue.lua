-- Milliseconds for which a process counts as alive after it has shown so.
local ALIVE = 6000
local function show_alive(alive, process, now)
  -- A server whose memory is full allows PEXPIRE, and then lets the script go on. It would refuse one that begins with
  -- ZADD: soon no process would count as alive, and the next hand-over would take each waiter out of the queue.
  local known = redis.call('pexpire', alive, 10 * ALIVE) == 1
  redis.call('zadd', alive, now + ALIVE, process)
  if not known then
    redis.call('pexpire', alive, 10 * ALIVE)
  end
  -- A process whose time is over counts as dead, listed or not. We remove it, because the set does not expire while
  -- anybody waits. The user may lack the rights for that.
  local first = redis.pcall('zrange', alive, 0, 9, 'withscores')
  for n = 1, #first, 2 do
    if tonumber(first[n + 1]) <= now then
      redis.pcall('zrem', alive, first[n])
    end
  end
end
