package tidelock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.JsonObject;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import tidelock.ProcessRecord;

/**
 * What a worker can be told to do. A request says {@code "kind":"fenced"} for a fenced lock, {@code "fair"}, {@code "spin"},
 * {@code "non_reentrant"}, {@code "read"} and {@code "write"} for the other kinds of one name, {@code "sides"} for both sides, {@code "multi"} for the locks whose names stand with a
 * plus between them, and {@code "majority"} for a lock of that name on every server.
 */
final class Commands {
    private final List<RedissonClient> servers;
    private final RedissonClient redisson;
    // Redisson remembers the last lease in the lock object and uses it at a partial unlock, so objects are kept.
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();

    /** What {@code tidelock top} sees of this process, from the command {@code tell} on. */
    private volatile ProcessRecord record;

    Commands(List<RedissonClient> servers) {
        this.servers = servers;
        redisson = servers.get(0);
    }

    Object run(JsonObject request) throws Exception {
        String command = request.get("do").getAsString();
        if (command.equals("thread_id")) {
            return threadId();
        }
        if (command.equals("tell")) {
            record = new ProcessRecord(redisson, request.get("program").getAsString(), "1.9");
            return null;
        }
        if (command.equals("soak")) {
            return new Soak(redisson, servers.get(1), request).run();
        }
        if (command.equals("soak_stop")) {
            Soak.stop();
            return null;
        }
        if (request.get("kind").getAsString().equals("permits")) {
            return new Permits(redisson, request).run(command);
        }
        if (request.get("kind").getAsString().equals("semaphore")) {
            return new CountingSemaphores(redisson, request).run(command);
        }
        if (request.get("kind").getAsString().equals("latch")) {
            return new Latches(redisson, request).run(command);
        }
        RLock lock = lock(request);
        return switch (command) {
            case "lock" -> record == null
                    ? take(lock, lease(request))
                    : record.waiting(lock.getName(), () -> take(lock, lease(request)));
            case "try_lock" -> tryLock(lock, request);
            case "lock_when_free" -> lockWhenFree(lock);
            case "unlock" -> {
                lock.unlock();
                yield null;
            }
            case "force_unlock" -> lock.forceUnlock();
            case "is_locked" -> lock.isLocked();
            case "is_held" -> lock.isHeldByCurrentThread();
            case "hold_count" -> lock.getHoldCount();
            case "ttl_ms" -> lock.remainTimeToLive();
            case "lock_and_get_token" -> Later.token(lock, "lockAndGetToken");
            case "try_lock_and_get_token" -> Later.token(lock, "tryLockAndGetToken");
            case "token" -> Later.token(lock, "getToken");
            case "hammer" -> new Hammer(lock, readSide(request), isFenced(request), request).run();
            case "turns" -> new Turns(lock, request).run();
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    private static boolean isFenced(JsonObject request) {
        return request.get("kind").getAsString().equals("fenced");
    }

    private RLock readSide(JsonObject request) {
        boolean sides = request.get("kind").getAsString().equals("sides");
        return sides ? redisson.getReadWriteLock(request.get("name").getAsString()).readLock() : null;
    }

    private RLock lock(JsonObject request) throws Exception {
        String name = request.get("name").getAsString();
        String key = request.get("kind").getAsString() + " " + name;
        RLock known = locks.get(key);
        if (known != null) {
            return known;
        }
        RLock made = make(request.get("kind").getAsString(), name);
        RLock first = locks.putIfAbsent(key, made);
        return first == null ? made : first;
    }

    @SuppressWarnings("deprecation")
    private RLock make(String kind, String name) throws Exception {
        return switch (kind) {
            case "fenced" -> Later.lock(redisson, "getFencedLock", name);
            case "spin" -> Later.lock(redisson, "getSpinLock", name);
            case "non_reentrant" -> Later.lock(redisson, "getNonReentrantLock", name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write", "sides" -> redisson.getReadWriteLock(name).writeLock();
            case "multi" -> new RedissonMultiLock(
                    Stream.of(name.split("\\+")).map(redisson::getLock).toArray(RLock[]::new));
            case "majority" -> new RedissonRedLock(
                    servers.stream().map(server -> server.getLock(name)).toArray(RLock[]::new));
            default -> redisson.getLock(name);
        };
    }

    private static long lease(JsonObject request) {
        return request.has("lease_ms") ? request.get("lease_ms").getAsLong() : -1;
    }

    private static Object take(RLock lock, long leaseMs) {
        if (leaseMs < 0) {
            lock.lock();
        } else {
            lock.lock(leaseMs, MILLISECONDS);
        }
        return null;
    }

    private static boolean tryLock(RLock lock, JsonObject request) throws InterruptedException {
        if (!request.has("wait_ms")) {
            return lock.tryLock();
        }
        return lock.tryLock(request.get("wait_ms").getAsLong(), lease(request), MILLISECONDS);
    }

    /** Takes the lock, notes when, and gives it back. */
    private static Answers.Timed lockWhenFree(RLock lock) {
        lock.lock();
        long at = System.nanoTime();
        lock.unlock();
        return new Answers.Timed(null, at);
    }

    @SuppressWarnings("deprecation")
    private static long threadId() {
        return Thread.currentThread().getId();
    }
}
