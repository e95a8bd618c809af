package tidelock.peer;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RLock;

/**
 * Takes a lock again and again on several threads and checks in a shared file that nobody else is inside. With a read
 * lock, two of three holds are a reader's: it may be inside with other readers.
 */
final class Hammer {
    private final RLock lock;
    private final RLock read;
    private final boolean fenced;
    private final int rounds;
    private final int threads;
    private final String file;
    private final long holdNs;

    Hammer(RLock lock, RLock read, boolean fenced, JsonObject request) {
        this.lock = lock;
        this.read = read;
        this.fenced = fenced;
        rounds = request.get("rounds").getAsInt();
        threads = request.get("threads").getAsInt();
        file = request.get("word_file").getAsString();
        holdNs = request.get("hold_us").getAsLong() * 1000;
    }

    Map<String, Object> run() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try (WordFile word = new WordFile(file)) {
            List<Callable<Tally>> jobs = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                long me = ProcessHandle.current().pid() << 16 | t + 1;
                jobs.add(() -> work(word, me));
            }
            Tally all = new Tally();
            for (Future<Tally> job : pool.invokeAll(jobs)) {
                all.add(job.get());
            }
            return all.report();
        } finally {
            pool.shutdown();
        }
    }

    private Tally work(WordFile word, long me) throws Exception {
        Tally tally = new Tally();
        for (int round = 0; round < rounds; round++) {
            boolean reads = read != null && (round + me) % 3 != 0;
            RLock side = reads ? read : lock;
            long asked = System.nanoTime();
            long token = 0;
            if (fenced) {
                token = Later.token(lock, "lockAndGetToken");
            } else {
                side.lock();
            }
            try {
                tally.waits.add(System.nanoTime() - asked);
                if (reads) {
                    reading(word, tally);
                } else {
                    inside(word, me, token, tally);
                }
            } finally {
                side.unlock();
            }
        }
        return tally;
    }

    private void inside(WordFile word, long me, long token, Tally tally) throws Exception {
        boolean overlap = word.read(WordFile.INSIDE) != 0;
        word.write(WordFile.INSIDE, me);
        long counter = word.read(WordFile.COUNTER);
        if (fenced) {
            tally.tokenFaults += token > word.read(WordFile.TOKEN) ? 0 : 1;
            tally.lastToken = Math.max(tally.lastToken, token);
            word.write(WordFile.TOKEN, token);
        }
        hold();
        word.write(WordFile.COUNTER, counter + 1);
        overlap |= word.read(WordFile.INSIDE) != me;
        word.write(WordFile.INSIDE, 0);
        tally.overlaps += overlap ? 1 : 0;
    }

    /** Nobody may write meanwhile. */
    private void reading(WordFile word, Tally tally) throws Exception {
        long counter = word.read(WordFile.COUNTER);
        boolean overlap = word.read(WordFile.INSIDE) != 0;
        hold();
        overlap |= word.read(WordFile.INSIDE) != 0 || word.read(WordFile.COUNTER) != counter;
        tally.overlaps += overlap ? 1 : 0;
    }

    private void hold() {
        for (long end = System.nanoTime() + holdNs; System.nanoTime() < end; ) {
            Thread.yield();
        }
    }

    private static final class Tally {
        final List<Long> waits = new ArrayList<>();
        long overlaps;
        long tokenFaults;
        long lastToken;

        void add(Tally other) {
            waits.addAll(other.waits);
            overlaps += other.overlaps;
            tokenFaults += other.tokenFaults;
            lastToken = Math.max(lastToken, other.lastToken);
        }

        Map<String, Object> report() {
            long[] sorted = waits.stream().mapToLong(Long::longValue).sorted().toArray();
            return Map.of("acquisitions", sorted.length, "overlaps", overlaps, "token_faults", tokenFaults,
                    "last_token", lastToken, "wait_p50_ns", at(sorted, 50), "wait_p99_ns", at(sorted, 99),
                    "wait_max_ns", at(sorted, 100));
        }

        private static long at(long[] sorted, int percent) {
            return sorted.length == 0 ? 0 : sorted[(sorted.length - 1) * percent / 100];
        }
    }
}
