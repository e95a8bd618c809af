-- Redisson's brace rule: how the name of a lock stands in other keys and channels. The scripts build these
-- names themselves: Redis refuses the whole script to a user without rights for a key in KEYS.
local function named(prefix, name)
  if string.find(name, '{', 1, true) then
    return prefix .. name
  end
  return prefix .. '{' .. name .. '}'
end

