package tidelock.curator;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * Takes the lock again and again on several threads, and checks in a file of words that nobody else is inside. With a
 * side for reading, two holds of three are a reader's, which checks that no writer is inside.
 */
final class Hammer {
    private static final int INSIDE = 0;
    private static final int COUNTER = 8;

    private final InterProcessMutex read;
    private final InterProcessMutex write;
    private final int rounds;
    private final int threads;
    private final String file;
    private final long holdNs;
    private final List<Long> waits = Collections.synchronizedList(new ArrayList<>());

    Hammer(InterProcessMutex read, InterProcessMutex write, String[] words) {
        this.read = read;
        this.write = write;
        rounds = Integer.parseInt(words[1]);
        threads = Integer.parseInt(words[2]);
        file = words[3];
        holdNs = Long.parseLong(words[4]) * 1000;
    }

    String run() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long overlaps = 0;
        try (FileChannel word = FileChannel.open(Path.of(file), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            List<Callable<Long>> jobs = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                long me = ProcessHandle.current().pid() << 16 | t + 1;
                jobs.add(() -> work(word, me));
            }
            for (Future<Long> job : pool.invokeAll(jobs)) {
                overlaps += job.get();
            }
        } finally {
            pool.shutdown();
        }
        long[] sorted = waits.stream().mapToLong(Long::longValue).sorted().toArray();
        return String.format(
                "{\"acquisitions\":%d,\"overlaps\":%d,\"token_faults\":0,\"last_token\":0,"
                        + "\"wait_p50_ns\":%d,\"wait_p99_ns\":%d,\"wait_max_ns\":%d}",
                sorted.length, overlaps, at(sorted, 50), at(sorted, 99), at(sorted, 100));
    }

    private long work(FileChannel word, long me) throws Exception {
        long overlaps = 0;
        for (int round = 0; round < rounds; round++) {
            long asked = System.nanoTime();
            boolean reads = read != null && (round + me) % 3 != 0;
            InterProcessMutex lock = reads ? read : write;
            lock.acquire();
            try {
                waits.add(System.nanoTime() - asked);
                boolean overlap = reads ? look(word) : change(word, me);
                overlaps += overlap ? 1 : 0;
            } finally {
                lock.release();
            }
        }
        return overlaps;
    }

    /** True: somebody else was inside. */
    private boolean change(FileChannel word, long me) throws Exception {
        boolean overlap = read(word, INSIDE) != 0;
        write(word, INSIDE, me);
        long counter = read(word, COUNTER);
        stay();
        write(word, COUNTER, counter + 1);
        overlap |= read(word, INSIDE) != me;
        write(word, INSIDE, 0);
        return overlap;
    }

    /** True: a writer was inside. */
    private boolean look(FileChannel word) throws Exception {
        boolean overlap = read(word, INSIDE) != 0;
        long counter = read(word, COUNTER);
        stay();
        return overlap || read(word, INSIDE) != 0 || read(word, COUNTER) != counter;
    }

    private void stay() {
        for (long end = System.nanoTime() + holdNs; System.nanoTime() < end; ) {
            Thread.yield();
        }
    }

    private static long read(FileChannel word, long at) throws Exception {
        ByteBuffer bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
        word.read(bytes, at);
        return bytes.getLong(0);
    }

    private static void write(FileChannel word, long at, long value) throws Exception {
        word.write(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, value), at);
    }

    private static long at(long[] sorted, int percent) {
        return sorted.length == 0 ? 0 : sorted[(sorted.length - 1) * percent / 100];
    }
}
