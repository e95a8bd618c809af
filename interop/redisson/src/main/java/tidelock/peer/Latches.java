package tidelock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/** What a worker can be told to do with a count-down latch. */
final class Latches {
    private final RCountDownLatch latch;
    private final JsonObject request;

    Latches(RedissonClient redisson, JsonObject request) {
        this.request = request;
        latch = redisson.getCountDownLatch(request.get("name").getAsString());
    }

    Object run(String command) throws Exception {
        return switch (command) {
            case "set_if_new" -> latch.trySetCount(request.get("number").getAsLong());
            case "count" -> latch.getCount();
            case "count_down" -> {
                latch.countDown();
                yield null;
            }
            case "delete" -> latch.delete();
            case "wait" -> latch.await(request.get("wait_ms").getAsLong(), MILLISECONDS);
            case "wait_until_open" -> {
                latch.await();
                yield new Answers.Timed(null, System.nanoTime());
            }
            case "hammer" -> hammer();
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    /** Counts down many times on several threads. */
    private Object hammer() throws Exception {
        int threads = request.get("threads").getAsInt();
        int rounds = request.get("rounds").getAsInt();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<Object>> jobs = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            jobs.add(() -> {
                for (int round = 0; round < rounds; round++) {
                    latch.countDown();
                }
                return null;
            });
        }
        for (Future<Object> job : pool.invokeAll(jobs)) {
            job.get();
        }
        pool.shutdown();
        return null;
    }
}
