-- Milliseconds for which a process counts as alive after it has shown so.
local ALIVE = 6000
local function show_alive(alive, process, now)
  -- A server whose memory is full allows PEXPIRE, and then lets the script go on. It would refuse one that begins with
  -- ZADD: soon no process would count as alive, and the next hand-over would take each waiter out of the queue.
  redis.call('pexpire', alive, 10 * ALIVE)
  redis.call('zadd', alive, now + ALIVE, process)
  redis.call('pexpire', alive, 10 * ALIVE)
end
