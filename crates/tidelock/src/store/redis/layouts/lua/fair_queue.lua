-- Milliseconds for which a process counts as alive after it has shown so.
local ALIVE = 6000
-- Redisson's wait of a fair lock, its default. A deadline allows so much for each waiter ahead.
local WAIT = 300000
local function show_alive(alive, process, now)
  redis.call('zadd', alive, now + ALIVE, process)
  redis.call('pexpire', alive, 10 * ALIVE)
end
