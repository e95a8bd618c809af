-- Reads the state of a plain lock atomically. A token that the user is not allowed to read is left out.
-- KEYS: lock
-- ARGV: token counter
-- Returns {owner or nil, milliseconds left, token or nil}
local own = redis.pcall('get', KEYS[1])
if type(own) == 'table' then
  return own
end
local token = redis.pcall('get', ARGV[1])
if type(token) == 'table' then
  token = false
end
return {owner_shown(own), redis.call('pttl', KEYS[1]), token}
