package tidelock.peer;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import org.redisson.api.RLock;

/** Takes a lock again and again on several threads for a time, and counts how often each had it. */
final class Turns {
    private final RLock lock;
    private final int threads;
    private final long timeNs;
    private final long holdNs;

    Turns(RLock lock, JsonObject request) {
        this.lock = lock;
        threads = request.get("threads").getAsInt();
        timeNs = request.get("time_ms").getAsLong() * 1_000_000;
        holdNs = request.get("hold_us").getAsLong() * 1000;
    }

    Map<String, Object> run() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            long end = System.nanoTime() + timeNs;
            List<Callable<long[]>> jobs = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                jobs.add(() -> work(end));
            }
            List<Long> turns = new ArrayList<>();
            long longest = 0;
            for (Future<long[]> job : pool.invokeAll(jobs)) {
                turns.add(job.get()[0]);
                longest = Math.max(longest, job.get()[1]);
            }
            return Map.of("turns", turns, "longest_ns", longest);
        } finally {
            pool.shutdown();
        }
    }

    private long[] work(long end) {
        long turns = 0;
        long longest = 0;
        while (System.nanoTime() < end) {
            long asked = System.nanoTime();
            lock.lock();
            try {
                longest = Math.max(longest, System.nanoTime() - asked);
                turns++;
                for (long until = System.nanoTime() + holdNs; System.nanoTime() < until; ) {
                    LockSupport.parkNanos(until - System.nanoTime());
                }
            } finally {
                lock.unlock();
            }
        }
        return new long[] {turns, longest};
    }
}
