-- The rest of the script that releases a plain lock: this owner does not hold it.
-- A server that has become a replica may not have the lock yet. It refuses this write, which has no effect on a
-- primary: a tombstone that exists keeps its time. One without a limit, which an operator has made, gets the usual five
-- minutes.
local tombstone = KEYS[2] or tombstone_of(KEYS[1], ARGV[1])
local primary = redis.pcall('pttl', tombstone)
if type(primary) == 'number' then
  primary = redis.pcall('pexpire', tombstone, primary == -1 and 300000 or math.max(primary, 1))
end
-- While the slot migrates, a node of a cluster refuses a key that it does not have. It has the slot of the lock, so it is no
-- replica.
if type(primary) == 'table' and not string.find(primary.err, 'non local key', 1, true) then
  return primary
end
return refused or 0
