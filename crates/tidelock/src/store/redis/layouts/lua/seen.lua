-- Decides a forced release under a condition: the lock is held by nobody but the owners that somebody has seen, and the
-- newest token is still the same.

-- The owners, and what the ids of the permits of one acquisition have in common.
local function seen_owners(first)
  local owners = {}
  for i = first, #ARGV do
    owners[ARGV[i]] = true
    if #ARGV[i] == 32 then
      owners[string.sub(ARGV[i], 1, 28)] = true
    end
  end
  return owners
end

-- Whether each field of the hash of a lock is of one of the owners. The field of a writer ends with ':write'. HGETALL: a
-- user who may look at locks has no right to HKEYS.
local function is_held_by(key, owners)
  local fields, held, mode = redis.call('hgetall', key), false, nil
  for i = 1, #fields, 2 do
    mode = fields[i] == 'mode' and fields[i + 1] or mode
  end
  for i = 1, #fields, 2 do
    local field = fields[i]
    -- A reader that has died is shown to nobody.
    if field ~= 'mode' and not is_dead_reader(key, mode, field, fields[i + 1]) then
      local owner = mode and string.match(field, '^(.*):write$') or field
      if not owners[owner] then
        return false
      end
      held = true
    end
  end
  return held
end

-- The same for the permits that are out. An id is bytes, and shown as digits.
local function are_out_by(out, now, owners)
  local ids = redis.call('zrangebyscore', out, '(' .. now, '+inf')
  for _, id in ipairs(ids) do
    local owner = id
    if #id == 16 then
      owner = string.gsub(string.sub(id, 1, 14), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
    end
    if not owners[owner] then
      return false
    end
  end
  return #ids > 0
end
