-- Ends a claim. ARGV: name, claim, slot, time, outcome, delay of the loss report (microseconds; 0 if none, or in time)
redis.call('HDEL', 'claims ' .. ARGV[1], ARGV[2])
redis.call('HINCRBY', 'ended', ARGV[5], 1)
local bound = redis.call('HGET', 'gone', string.match(ARGV[2], '^(.-)#') or '')
local late = tonumber(ARGV[6])
if bound then
  redis.call('HINCRBY', 'counts', 'holds whose lock was deleted', 1)
  late = math.max(late, tonumber(ARGV[4]) - tonumber(bound))
end
if late > 0 then
  redis.call('RPUSH', 'late', table.concat({ARGV[3], ARGV[4], string.format('%.0f', late), ARGV[5], ARGV[1]}, ' '))
end
return 'ok'
