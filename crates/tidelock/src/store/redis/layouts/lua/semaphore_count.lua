-- Reads how many permits a counting semaphore has.
-- KEYS: semaphore
-- Returns {0, number}. {7, what it is}: the key is no semaphore.
local free, other = number_at(KEYS[1])
return other or {0, free or 0}
