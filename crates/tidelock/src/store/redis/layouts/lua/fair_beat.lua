-- Shows that a process with waiters is alive, and hands the lock over if it is free: its holder may have died.
-- KEYS: lock, queue, deadlines, living processes
-- ARGV: how to publish, process, the owners that wait
-- Returns {milliseconds left, -1 without a limit or -2 if the lock is free; 1 if the hand-over has more waiters to look
-- at; the owners without a place in the queue: they were granted the lock or removed, and must ask}.
local now, length = server_time(), redis.call('llen', KEYS[2])
show_alive(KEYS[4], ARGV[2], now)
local more = false
if redis.call('exists', KEYS[1]) == 0 then
  more = select(3, hand_over(KEYS[1], ARGV[1], nil, true))
else
  forget_turn(KEYS[1])
end
local answer = {redis.call('pttl', KEYS[1]), more and 1 or 0}
for i = 3, #ARGV do
  -- Redisson lowers all deadlines with each of its grants, and removes a head whose deadline has passed. If the queue is empty,
  -- somebody has deleted it.
  if length > 0 and redis.call('zscore', KEYS[3], ARGV[i]) then
    redis.call('zadd', KEYS[3], 'XX', 'GT', now + WAIT * (length + 1), ARGV[i])
  else
    answer[#answer + 1] = ARGV[i]
  end
end
return answer
