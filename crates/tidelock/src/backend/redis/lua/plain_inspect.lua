-- Looks at a plain lock at one instant. What the rights forbid is left out.
-- KEYS: lock
-- ARGV: token counter
-- Answers {value or nothing, milliseconds left, token or nothing}
local own = redis.pcall('get', KEYS[1])
if type(own) == 'table' then
  return own
end
local token = redis.pcall('get', ARGV[1])
if type(token) == 'table' then
  token = false
end
return {own, redis.call('pttl', KEYS[1]), token}
