-- The next part of the script that releases a lock: somebody waits or may wait, or there was nothing to release.
local how = ARGV[2] or 'publish'
-- The reply. `all` and `ours`: how many processes wait. `muted`: the server refused the message.
local function released(answer, all, ours, muted)
  local reply = answer or own == 1 and (muted and 2 or all == 0 and 1 or {all, ours}) or own
  if refused and reply ~= 0 and string.find(refused.err, 'OOM', 1, true) then
    return 3
  end
  return refused or reply
end
local function tell_lock()
  if ARGV[4] ~= 'spins' or is_heard(channel, how) then
    return tell(channel, how, nil, heard)
  end
  return 0, 0, false
end
if not others then
  if own == 1 then
    return released(nil, tell_lock())
  end
  return released(0)
end
