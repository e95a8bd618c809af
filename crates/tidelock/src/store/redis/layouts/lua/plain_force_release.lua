-- Releases a plain lock regardless of its owner, or only if it is held as somebody has seen it.
-- KEYS: lock
-- ARGV: nothing, or the owner; and then nothing, or the token counter and the newest token
-- Returns 1: it was held. 0: it was free, or is held otherwise.

-- Whether an owner is shown as this text. One that is no text is shown by its digits.
local function is_shown_as(text, owner)
  if owner == text then
    return true
  end
  if #text ~= 2 + 2 * #owner or not string.find(owner, '[\128-\255]') then
    return false
  end
  local digits = string.gsub(owner, '.', function(byte)
    return string.format('%02x', string.byte(byte))
  end)
  return text == '0x' .. digits
end

local kind = redis.call('type', KEYS[1])['ok']
if kind == 'none' then
  return 0
end
if kind ~= 'string' then
  return redis.error_reply('WRONGTYPE the key is no plain lock')
end
if ARGV[1] then
  local own = redis.call('get', KEYS[1])
  if not is_shown_as(ARGV[1], own) and not is_shown_as(ARGV[1], owner_shown(own)) then
    return 0
  end
end
if ARGV[2] and redis.pcall('get', ARGV[2]) ~= ARGV[3] then
  return 0
end
return redis.call('del', KEYS[1])
