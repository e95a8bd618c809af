package tidelock.peer;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * Takes locks for a long time, and says to a second server, the witness, what it may be sure of. Redisson tells nobody of a
 * loss. So what a thread may be sure of is counted from what is certain: a lease from the call, or the time that is left when
 * it asks.
 */
final class Soak {
    private static final long LOOK_MS = 100;
    private static final long SLACK_US = 50_000;
    private static volatile boolean stopping;

    private final RedissonClient redisson;
    private final RScript witness;
    private final String enter;
    private final String leave;
    private final String who;
    private final boolean knowsTokens;
    private final long leaseUs;
    private final int[] names;
    private final int[] threads;
    private final long seed;
    private final Map<String, Long> errors = new ConcurrentHashMap<>();
    private final AtomicLong longestMs = new AtomicLong();

    Soak(RedissonClient redisson, RedissonClient second, JsonObject request) {
        this.redisson = redisson;
        witness = second.getScript(StringCodec.INSTANCE);
        enter = request.get("enter").getAsString();
        leave = request.get("leave").getAsString();
        who = request.get("who").getAsString();
        knowsTokens = request.get("knows_tokens").getAsBoolean();
        leaseUs = request.get("lease_ms").getAsLong() * 1000;
        names = new int[] {request.get("slow").getAsInt(), request.get("fast").getAsInt()};
        threads = new int[] {request.get("slow_threads").getAsInt(), request.get("fast_threads").getAsInt()};
        seed = request.get("seed").getAsLong();
    }

    static void stop() {
        stopping = true;
    }

    Map<String, Object> run() throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int kind = 0; kind < 2; kind++) {
            for (int t = 0; t < threads[kind]; t++) {
                boolean fast = kind == 1;
                var random = new SplittableRandom(seed + all.size());
                all.add(new Thread(() -> work(fast, random), "soak " + all.size()));
            }
        }
        all.forEach(Thread::start);
        for (Thread thread : all) {
            thread.join();
        }
        return Map.of("longest_ms", longestMs.get(), "errors", new TreeMap<>(errors));
    }

    private void work(boolean fast, SplittableRandom random) {
        long rounds = 0;
        while (!stopping) {
            try {
                round(fast, random, Thread.currentThread().getName() + " " + rounds++);
            } catch (Exception error) {
                errors.merge(error.getClass().getSimpleName(), 1L, Long::sum);
                LockSupport.parkNanos(50_000_000);
            }
        }
    }

    private void round(boolean fast, SplittableRandom random, String id) throws Exception {
        String name = (fast ? "fast " : "slow ") + random.nextInt(names[fast ? 1 : 0]);
        boolean fenced = knowsTokens && random.nextInt(4) > 0;
        RLock lock = fenced ? Later.lock(redisson, "getFencedLock", name) : redisson.getLock(name);
        long asked = micros();
        long token = 0;
        if (fenced) {
            token = Later.token(lock, "lockAndGetToken");
        } else {
            lock.lock();
        }
        try {
            longestMs.accumulateAndGet((micros() - asked) / 1000, Math::max);
            inside(lock, name, asked, token, fast ? 0 : random.nextLong(2 * leaseUs), who + " " + id);
        } finally {
            lock.unlock();
        }
    }

    private void inside(RLock lock, String name, long asked, long token, long holdUs, String claim) {
        long from = micros();
        long until = asked + leaseUs - SLACK_US;
        if (until < from + leaseUs / 2) {
            until = Math.max(until, left(lock));
        }
        tell(enter, name, claim, who, "java", from, Math.max(from, until), token, "new");
        for (long end = from + holdUs; micros() < end && !stopping; ) {
            LockSupport.parkNanos(LOOK_MS * 1_000_000);
        }
        tell(leave, name, claim, "java", micros(), "given back", 0);
    }

    /** Until when the store keeps it for this thread, if it does: asked in this order, another's time is never taken for ours. */
    private static long left(RLock lock) {
        long before = micros();
        long left = lock.remainTimeToLive();
        return lock.isHeldByCurrentThread() ? before + left * 1000 - SLACK_US : 0;
    }

    private void tell(String sha, Object... what) {
        Object[] words = new Object[what.length];
        for (int i = 0; i < what.length; i++) {
            words[i] = String.valueOf(what[i]);
        }
        witness.<Object>evalSha(RScript.Mode.READ_WRITE, sha, RScript.ReturnType.VALUE, List.of(), words);
    }

    private static long micros() {
        return System.nanoTime() / 1000;
    }
}
