package tidelock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** What a worker can be told to do with a semaphore whose permits have no holder. */
final class CountingSemaphores {
    private final RedissonClient redisson;
    private final RSemaphore semaphore;
    private final JsonObject request;

    CountingSemaphores(RedissonClient redisson, JsonObject request) {
        this.redisson = redisson;
        this.request = request;
        semaphore = redisson.getSemaphore(request.get("name").getAsString());
    }

    Object run(String command) throws Exception {
        return switch (command) {
            case "set_if_new" -> semaphore.trySetPermits(number());
            case "add" -> {
                semaphore.addPermits(number());
                yield null;
            }
            case "available" -> semaphore.availablePermits();
            case "drain" -> semaphore.drainPermits();
            case "try_acquire" -> request.has("wait_ms")
                    ? semaphore.tryAcquire(number(), request.get("wait_ms").getAsLong(), MILLISECONDS)
                    : semaphore.tryAcquire(number());
            case "acquire" -> {
                semaphore.acquire(number());
                yield new Answers.Timed(null, System.nanoTime());
            }
            case "release" -> {
                semaphore.release(number());
                yield null;
            }
            case "hammer" -> hammer();
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    private int number() {
        return request.get("number").getAsInt();
    }

    /** Takes permits again and again on several threads, and counts on the server how many are inside. */
    private Map<String, Object> hammer() throws Exception {
        int threads = request.get("threads").getAsInt();
        int rounds = request.get("rounds").getAsInt();
        var inside = redisson.getAtomicLong(request.get("inside").getAsString());
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<long[]>> jobs = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            int first = t;
            jobs.add(() -> {
                long most = 0;
                long longest = 0;
                for (int round = 0; round < rounds; round++) {
                    int permits = (round + first) % 2 + 1;
                    long asked = System.nanoTime();
                    semaphore.acquire(permits);
                    longest = Math.max(longest, System.nanoTime() - asked);
                    most = Math.max(most, inside.addAndGet(permits));
                    inside.addAndGet(-permits);
                    semaphore.release(permits);
                }
                return new long[] {most, longest};
            });
        }
        long most = 0;
        long longest = 0;
        for (Future<long[]> job : pool.invokeAll(jobs)) {
            most = Math.max(most, job.get()[0]);
            longest = Math.max(longest, job.get()[1]);
        }
        pool.shutdown();
        return Map.of("acquisitions", threads * rounds, "most_inside", most, "wait_max_ns", longest);
    }
}
