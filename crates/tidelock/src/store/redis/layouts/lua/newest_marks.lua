-- ARGV: at most so many. Returns slot, mark, slot, mark and so on, the newest first.
-- The sorted set has the slots by their ends, and a job may have changed how long it keeps its marks. So we sort by the
-- tokens, which grow from attempt to attempt; texts without one stay in the order of their ends. Of more than a thousand
-- marks we return those that are kept longest: nobody else is served while a script reads.
local limit, most = tonumber(ARGV[1]), 1000
local read = string.format('%.0f', math.max(limit, most + 1))
local slots = redis.call('zrange', KEYS[2], '+inf', '(' .. string.format('%.0f', now), 'byscore', 'rev', 'limit', 0, read)
local found = {}
for at, slot in ipairs(slots) do
  if #slots > most and at > limit then
    break
  end
  local text = redis.call('hget', KEYS[1], slot) or ''
  found[at] = {slot = slot, text = text, token = tonumber(string.match(text, ' token=(%d+)')) or 0, at = at}
end
if #slots <= most then
  table.sort(found, function(a, b)
    return a.token > b.token or a.token == b.token and a.at < b.at
  end)
end
local answer = {}
for at = 1, math.min(limit, #found) do
  answer[2 * at - 1] = found[at].slot
  answer[2 * at] = found[at].text
end
return answer
