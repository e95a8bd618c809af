-- Renews locks in many slots of one cluster node. Their names are arguments, because all KEYS of a script must be in one
-- slot. The node refuses each use of a key whose slot it does not have, or that has migrated.
-- ARGV: for each lock its name, its lease in milliseconds and its owner
-- Returns a list: 1 renewed. 0: this script cannot tell, and has written nothing; the script of the lock's slot decides.
local answers = {}
for i = 1, #ARGV / 3 do
  local key, lease, owner = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  local renewed = redis.pcall('hexists', key, owner) == 1 and redis.pcall('hexists', key, 'mode') == 0
  if renewed then
    -- Never shorten the lease. Write in any case, because a later `WAIT` covers only writes of its own connection.
    local left = redis.pcall('pttl', key)
    renewed = left == -1 or type(left) == 'number' and redis.pcall('pexpire', key, math.max(left, lease)) == 1
  end
  answers[i] = renewed and 1 or 0
end
return answers
