-- Frees a lock, whoever holds it, and wakes its waiters.
-- KEYS: lock
-- ARGV: channel, 'publish' or 'spublish' or 'both'
-- Answers 1: it was held. 2: it was held, but the message was refused. 0: it was free.
local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return 0
end
if kind ~= 'hash' or redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the key is not a plain lock')
end
redis.call('del', KEYS[1])
local answer = 1
for _, how in ipairs({'publish', 'spublish'}) do
  if ARGV[2] == how or ARGV[2] == 'both' then
    local sent = redis.pcall(how, ARGV[1], '0')
    if type(sent) == 'table' then
      answer = 2
    end
  end
end
return answer
