package tidelock.curator;

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
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator, with its own defaults, as a side of the bench: takes locks under load and notes when. Its words are in
 * {@code interop/README.md}. Arguments: {@code host:port}, and {@code permits N} for an InterProcessSemaphoreV2 of so many
 * instead of an InterProcessMutex.
 */
public final class Bench {
    private final CuratorFramework client;
    private final int permits;

    private Bench(CuratorFramework client, int permits) {
        this.client = client;
        this.permits = permits;
    }

    /** Waits for its turn, and returns how to end it. */
    private interface Taker {
        Turn take() throws Exception;
    }

    private interface Turn {
        void end() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 10));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no ZooKeeper at " + args[0]);
        }
        boolean shared = args.length > 2 && args[1].equals("permits");
        Bench bench = new Bench(client, shared ? Integer.parseInt(args[2]) : 0);
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
                jobs.add(new Task(t, taker("/" + (one ? name : name + " " + t)), order, ready));
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

    private Taker taker(String path) {
        if (permits > 0) {
            var semaphore = new InterProcessSemaphoreV2(client, path, permits);
            return () -> {
                Lease lease = semaphore.acquire();
                return () -> semaphore.returnLease(lease);
            };
        }
        var mutex = new InterProcessMutex(client, path);
        Turn release = mutex::release;
        return () -> {
            mutex.acquire();
            return release;
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
                Turn turn = taker.take();
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
