    -- Prototype: a waiter joins the queue of tidelock's waiters.
    -- ARGV: lease, owner, 'sleeps', tokens, queue
    if not redis.call('lpos', ARGV[5], ARGV[2]) then
      redis.call('rpush', ARGV[5], ARGV[2])
    end
