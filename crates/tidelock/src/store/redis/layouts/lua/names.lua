-- Builds other keys and channels from the name of a lock, by Redisson's brace rule. The scripts do not get these
-- names in KEYS: Redis refuses a whole script if the user lacks the rights for one of its KEYS.
local function named(prefix, name)
  if string.find(name, '{', 1, true) then
    return prefix .. name
  end
  return prefix .. '{' .. name .. '}'
end

