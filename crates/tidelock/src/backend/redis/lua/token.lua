-- The next tokens of a fencing counter. Put before the scripts that take a lock, which call it before they write anything else,
-- because it can fail.
-- Answers the last of them, and how many come before it; or nothing, and what the script is to answer.
local function take_tokens(counter, count)
  local last = redis.pcall('get', counter)
  if type(last) == 'table' then
    if string.find(last.err, 'WRONGTYPE', 1, true) then
      return nil, {4, ''}
    end
  elseif last and not string.find(last, '^%d+$') then
    return nil, {4, string.sub(last, 1, 64)} -- below zero, or no number
  end
  local token, more = nil, 0
  if count ~= '1' then
    token = redis.pcall('incrby', counter, count)
    if type(token) == 'number' then
      more = tonumber(count) - 1
    end
  end
  if more == 0 then
    token = redis.pcall('incr', counter) -- a user may lack the right to take more than one
  end
  if type(token) == 'table' then
    if string.find(token.err, 'overflow', 1, true) or string.find(token.err, 'integer', 1, true) then
      return nil, {4, string.sub(tostring(last), 1, 64)} -- at its end
    end
    return nil, token
  end
  if token >= 2 ^ 53 then
    token = redis.call('get', counter) -- numbers of scripts are not exact from here on
  end
  return token, more
end

