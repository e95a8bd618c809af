-- Milliseconds for which a grant of a hand-over lasts until its owner confirms it, and for which a waiter of Redisson
-- has its turn. At least as long as a process counts as alive: when the grant of a frozen waiter ends, all that froze
-- with it count as dead.
local GRANT = 6000
-- Redisson's wait of a fair lock, its default, in milliseconds. A deadline allows so much for each waiter ahead.
local WAIT = 300000
-- Milliseconds in the server's time since 1970. Redisson's deadlines are in that unit too, by its clients' clocks.
local function server_time()
  local time = redis.pcall('time')
  return time[1] and time[1] * 1000 + math.floor(time[2] / 1000) or 0
end
-- Removes an entry of the queue. False: the user is not allowed to.
local function dequeue(key, place, owner)
  local queue = named('redisson_lock_queue:', key)
  local gone = place == 0 and redis.pcall('lpop', queue) or redis.pcall('lrem', queue, 1, owner)
  redis.pcall('zrem', named('redisson_lock_timeout:', key), owner)
  return type(gone) ~= 'table'
end
-- Whether a waiter of Redisson has its turn: while it lasts, nobody else gets the lock. The first call begins the turn.
-- The deadline tells a turn from that of an earlier wait of the same thread, and each grant by Redisson changes it. We
-- do not shorten the deadline: Redisson would remove the waiter without a message, and before Redisson 3.32 the waiter
-- would sleep without end. Those that queue behind it would inherit the short deadline.
local function has_turn(key, owner, deadline, length, now)
  local granted, turn = named('tidelock:granted:', key), owner .. ' ' .. deadline .. ' '
  local noted = redis.pcall('get', granted)
  if type(noted) == 'string' and string.sub(noted, 1, #turn) == turn then
    return now - tonumber(string.sub(noted, #turn + 1)) < length
  end
  redis.pcall('set', granted, turn .. string.format('%.0f', now), 'px', 2 * GRANT)
  return true
end
-- The lock was held meanwhile, perhaps by another client: the next turn of the same waiter has its whole length.
local function forget_turn(key)
  local granted = named('tidelock:granted:', key)
  local noted = redis.pcall('get', granted)
  if type(noted) == 'string' and string.find(noted, ' ', 1, true) then
    redis.pcall('del', granted)
  end
end
-- Whether an owner, or the process of one, is tidelock's: a UUID of version 8.
local function is_ours(owner)
  return string.sub(owner, 15, 15) == '8'
end
-- Tells a waiter of tidelock that it should ask. It shares the channel with the other waiters of its process for this
-- lock, so the message has the number of its acquisition. Nobody else listens to that channel: if a killed process had
-- been waiting at the head, somebody who waits for a lock without a queue could listen to the channel of the head.
local function tell_turn(key, owner, how)
  local channel = named('redisson_lock__channel:', key) .. ':' .. string.sub(owner, 1, 36)
  return tell(channel, how, string.sub(owner, 38))
end
-- Grants a free lock to the first waiter of tidelock whose process is alive and hears its channel. A waiter of Redisson
-- must not be granted the lock, because it asks again and would count to 2: it is woken, and has its turn.
-- A process is alive if it has shown so within the last seconds. A waiter whose process is not alive is removed. One
-- that nobody can tell keeps its place: its process may be about to subscribe again.
-- asks: the owner that asks at this moment, or nil; it need not be told
-- ends_turn: a waiter of Redisson that does not come within its turn loses its place. Not after the release of another
-- kind of lock, because others may then take the lock before it.
-- Returns the owner that has the lock now or nil, the number of clients other than tidelock that were told, and whether
-- there may be more waiters to look at.
local function hand_over(key, how, asks, ends_turn)
  local queue, deadlines = named('redisson_lock_queue:', key), named('redisson_lock_timeout:', key)
  local alive, channel = named('tidelock:alive:', key), named('redisson_lock__channel:', key)
  local now, hears, place = server_time(), {}, 0
  for _ = 1, 1000 do
    local owner = redis.pcall('lindex', queue, place)
    if type(owner) ~= 'string' then
      return nil, 0, false -- the end of the queue, or the user is not allowed to read it
    end
    if is_ours(owner) then
      local process = string.sub(owner, 1, 36)
      if hears[process] == nil then
        local till = redis.pcall('zscore', alive, process)
        if type(till) == 'table' then
          return nil, 0, false -- the user may not read who is alive
        end
        if till and tonumber(till) > now then
          hears[process] = true
        end
      end
      if hears[process] == nil then
        if not dequeue(key, place, owner) then
          place = place + 1
        end
      else
        local heard, refused = 0, false
        if owner ~= asks and hears[process] then
          local all, _, muted = tell_turn(key, owner, how)
          heard, refused = all, muted
        end
        if owner == asks or heard > 0 or refused then
          -- Before Redis 7.2 a script sees the time go by. The mark must not end before the grant.
          local noted = redis.pcall('set', named('tidelock:granted:', key), owner, 'px', GRANT + 1000)
          local set = not noted.err and redis.pcall('hset', key, owner, 1)
          if type(set) ~= 'number' then
            return nil, 0, false -- the user is not allowed to grant it
          end
          redis.call('pexpire', key, GRANT)
          dequeue(key, place, owner)
          return owner, 0, false
        end
        hears[process] = false
        place = place + 1
      end
    else
      -- We tell it also when it loses its place: it may sleep, and asks for a new one. tidelock's waiters listen to that
      -- channel too, but are counted on the lock's own channel already.
      local all, ours = tell(channel .. ':' .. owner, how)
      local ends = redis.pcall('zscore', deadlines, owner)
      if type(ends) == 'table' then
        return nil, 0, false -- the user may not read the deadlines
      end
      local comes = ends and tonumber(ends) > now
      if comes and ends_turn then
        comes = has_turn(key, owner, ends, all > 0 and GRANT or 1000, now)
      elseif comes then
        forget_turn(key)
      end
      if comes then
        -- Redisson grants the lock only to the head. The waiters in front keep their order.
        if place > 0 and type(redis.pcall('lpush', queue, owner)) == 'number' then
          redis.pcall('lrem', queue, -1, owner)
        end
        return nil, all - math.max(ours, 0), false
      end
      -- Its turn is over, its deadline has passed, or it has none: Redisson never removes the last, and the lock would
      -- stay blocked.
      if not dequeue(key, place, owner) then
        place = place + 1
      end
    end
  end
  return nil, 0, true
end
