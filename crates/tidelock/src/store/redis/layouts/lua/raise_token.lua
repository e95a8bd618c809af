-- Raises a fencing counter, unless it is there or beyond. Compares texts, because Lua numbers are exact only up to 2^53.
-- KEYS: fencing counter
-- ARGV: the newest token that counts as given out
-- Returns {1, value of the counter}, or {4, value} if the counter has no next token.
local function larger(a, b)
  return #a > #b or (#a == #b and a > b)
end
local last = redis.pcall('get', KEYS[1])
if type(last) == 'table' then
  if string.find(last.err, 'WRONGTYPE', 1, true) then
    return {4, ''}
  end
  return last
end
last = last or '0'
if not (last == '0' or string.find(last, '^[1-9]%d*$')) or larger(last, '9223372036854775806') then
  return {4, string.sub(last, 1, 64)} -- negative, not a number, or at its maximum
end
if larger(ARGV[1], last) then
  redis.call('set', KEYS[1], ARGV[1])
  last = ARGV[1]
end
return {1, last}
