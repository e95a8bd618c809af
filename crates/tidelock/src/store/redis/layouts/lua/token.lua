-- Takes the next tokens of a fencing counter. The acquire scripts call it before they write anything else, because it
-- can fail.
-- Returns the last token, and the number of tokens before it; or nil, and the reply of the script.
local function take_tokens(counter, count)
  local last = redis.pcall('get', counter)
  if type(last) == 'table' then
    if string.find(last.err, 'WRONGTYPE', 1, true) then
      return nil, {4, ''}
    end
  elseif last and not string.find(last, '^%d+$') then
    return nil, {4, string.sub(last, 1, 64)} -- negative, or not a number
  end
  local token, more = nil, 0
  if count ~= '1' then
    token = redis.pcall('incrby', counter, count)
    if type(token) == 'number' then
      more = tonumber(count) - 1
    end
  end
  if more == 0 then
    token = redis.pcall('incr', counter) -- the user may lack the right to INCRBY
  end
  if type(token) == 'table' then
    if string.find(token.err, 'overflow', 1, true) or string.find(token.err, 'integer', 1, true) then
      return nil, {4, string.sub(tostring(last), 1, 64)} -- the counter is at its maximum
    end
    return nil, token
  end
  if token >= 2 ^ 53 then
    token = redis.call('get', counter) -- Lua numbers are inexact from here on
  end
  return token, more
end

