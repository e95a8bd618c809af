-- The owner that the key of a plain lock shows. Another program may keep a document there, and a client ends its connection
-- at an answer of many megabytes. A value that is longer than an owner is shown by its beginning, its length and its SHA-1,
-- so a forced release still compares all of it.
local function owner_shown(value)
  if not value or #value <= 128 then
    return value
  end
  -- We do not cut through a character; otherwise the beginning would be no text.
  local first = string.gsub(string.sub(value, 1, 64), '[\192-\255][\128-\191]*$', '')
  return first .. '... (' .. #value .. ' bytes, SHA-1 ' .. redis.sha1hex(value) .. ')'
end

