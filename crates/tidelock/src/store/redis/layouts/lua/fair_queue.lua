-- Milliseconds for which a process counts as alive after it has shown so.
local ALIVE = 6000
local function show_alive(alive, process, now)
  redis.call('zadd', alive, now + ALIVE, process)
  redis.call('pexpire', alive, 10 * ALIVE)
end
