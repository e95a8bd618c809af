-- The tombstone of an owner, for a script that does not get it in KEYS because all keys are on one server. The same name
-- as that of `keys::tombstone`: the hash tag is the text between the first `{` and the next `}`, unless that is empty.
local function tombstone_of(name, owner)
  local tag = name
  if string.find(name, '{', 1, true) then
    tag = string.match(name, '^[^{]*{([^}]+)}') or name
  end
  return 'tidelock:withdrawn:{' .. tag .. '}:' .. owner
end
