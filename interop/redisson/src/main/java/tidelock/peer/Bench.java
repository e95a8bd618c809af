package tidelock.peer;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson, with its own defaults, as a side of the bench: takes locks under load and notes when. Its words are in
 * {@code interop/README.md}. Arguments: the Redis URL, and for other kinds than the lock {@code fair}, or
 * {@code permits N} (expiring ones) and {@code counting N} for a semaphore of so many, or {@code sides N} for a read-write
 * lock that N of a hundred holds read.
 */
public final class Bench {
    private final RedissonClient redisson;
    private final String kind;
    private final int number;

    private Bench(RedissonClient redisson, String[] args) {
        this.redisson = redisson;
        kind = args.length > 1 ? args[1] : "lock";
        number = args.length > 2 ? Integer.parseInt(args[2]) : 0;
    }

    /** Waits for its turn, the nth of a run, and returns how to end it. */
    private interface Taker {
        Turn take(int nth) throws Exception;
    }

    private interface Turn {
        void end();
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        var server = config.useSingleServer().setAddress(args[0]);
        if (args.length > 1 && args[1].equals("fair")) {
            // Each waiter of a fair lock has a channel of its own. The default allows 250 of them.
            server.setSubscriptionsPerConnection(100);
        }
        Bench bench = new Bench(Redisson.create(config), args);
        System.out.println("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(bench.answer(line));
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String line) {
        JsonObject answer = new JsonObject();
        try {
            JsonObject order = JsonParser.parseString(line).getAsJsonObject();
            if (!order.has("run")) {
                throw new UnsupportedOperationException(line);
            }
            JsonObject done = new JsonObject();
            done.addProperty("count", run(order.getAsJsonObject("run")));
            done.addProperty("at_ns", System.nanoTime());
            answer.add("done", done);
        } catch (Exception error) {
            answer.addProperty("failed", error.toString());
        }
        return answer.toString();
    }

    private int run(JsonObject order) throws Exception {
        int tasks = order.get("tasks").getAsInt();
        boolean one = order.get("names").getAsString().equals("one");
        String name = order.get("name").getAsString();
        ExecutorService pool = Executors.newFixedThreadPool(tasks);
        try {
            CyclicBarrier ready = new CyclicBarrier(tasks);
            List<Callable<List<String>>> jobs = new ArrayList<>();
            for (int t = 0; t < tasks; t++) {
                String own = one ? name : name + " " + t;
                jobs.add(new Task(t, taker(own, t), order, ready));
            }
            List<String> stamps = new ArrayList<>();
            for (Future<List<String>> job : pool.invokeAll(jobs)) {
                stamps.addAll(job.get());
            }
            Files.write(Path.of(order.get("file").getAsString()), stamps);
            return stamps.size();
        } finally {
            pool.shutdown();
        }
    }

    private Taker taker(String name, int task) {
        return switch (kind) {
            case "lock" -> locked(redisson.getLock(name));
            case "fair" -> locked(redisson.getFairLock(name));
            case "permits" -> {
                RPermitExpirableSemaphore permits = redisson.getPermitExpirableSemaphore(name);
                permits.trySetPermits(number);
                yield nth -> {
                    String id = permits.acquire();
                    return () -> permits.release(id);
                };
            }
            case "counting" -> {
                RSemaphore semaphore = redisson.getSemaphore(name);
                semaphore.trySetPermits(number);
                yield nth -> {
                    semaphore.acquire();
                    return semaphore::release;
                };
            }
            case "sides" -> {
                RReadWriteLock sides = redisson.getReadWriteLock(name);
                Taker read = locked(sides.readLock());
                Taker write = locked(sides.writeLock());
                // As `reads` in bench/load.
                yield nth -> ((nth * 19 + task * 37) % 100 < number ? read : write).take(nth);
            }
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    private static Taker locked(RLock lock) {
        Turn unlock = lock::unlock;
        return nth -> {
            lock.lock();
            return unlock;
        };
    }

    /** One thread: it asks, enters, leaves and has left, and notes each on the monotonic clock. */
    private record Task(int number, Taker taker, JsonObject order, CyclicBarrier ready)
            implements Callable<List<String>> {
        @Override
        public List<String> call() throws Exception {
            long start = order.get("start_ns").getAsLong();
            long stop = order.get("stop_ns").getAsLong();
            long holdUs = order.get("hold_us").getAsLong();
            List<long[]> stamps = new ArrayList<>();
            ready.await();
            long early = start - System.nanoTime();
            if (early > 0) {
                Thread.sleep(early / 1_000_000, (int) (early % 1_000_000));
            }
            for (long asked = System.nanoTime(); asked < stop || stamps.isEmpty(); asked = System.nanoTime()) {
                Turn turn = taker.take(stamps.size());
                long entered = System.nanoTime();
                if (holdUs > 0) {
                    Thread.sleep(holdUs / 1000, (int) (holdUs % 1000) * 1000);
                }
                long leaving = System.nanoTime();
                turn.end();
                stamps.add(new long[] {asked, entered, leaving, System.nanoTime()});
            }
            List<String> lines = new ArrayList<>();
            for (long[] at : stamps) {
                lines.add(number + " " + at[0] + " " + at[1] + " " + at[2] + " " + at[3]);
            }
            return lines;
        }
    }
}
