-- ARGV: at most so many. Returns slot, mark, slot, mark and so on, the one that is kept longest first.
local slots = redis.call('zrange', KEYS[2], '+inf', '(' .. string.format('%.0f', now), 'byscore', 'rev', 'limit', 0, ARGV[1])
local found = {}
for _, slot in ipairs(slots) do
  found[#found + 1] = slot
  found[#found + 1] = redis.call('hget', KEYS[1], slot) or ''
end
return found
