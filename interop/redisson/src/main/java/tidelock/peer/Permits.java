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
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/** What a worker can be told to do with the permits of a semaphore. */
final class Permits {
    private final RedissonClient redisson;
    private final RPermitExpirableSemaphore semaphore;
    private final JsonObject request;

    Permits(RedissonClient redisson, JsonObject request) {
        this.redisson = redisson;
        this.request = request;
        semaphore = redisson.getPermitExpirableSemaphore(request.get("name").getAsString());
    }

    Object run(String command) throws Exception {
        return switch (command) {
            case "set_if_new" -> semaphore.trySetPermits(request.get("number").getAsInt());
            case "add" -> {
                semaphore.addPermits(request.get("number").getAsInt());
                yield null;
            }
            case "available" -> semaphore.availablePermits();
            case "acquire" -> semaphore.acquire();
            case "acquire_when_free" -> acquireWhenFree();
            case "try_acquire" -> tryAcquire();
            case "release" -> semaphore.tryRelease(request.get("permit").getAsString());
            case "extend" -> semaphore.updateLeaseTime(
                    request.get("permit").getAsString(), request.get("lease_ms").getAsLong(), MILLISECONDS);
            case "hammer" -> hammer();
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    private String tryAcquire() throws InterruptedException {
        long wait = request.get("wait_ms").getAsLong();
        long lease = request.get("lease_ms").getAsLong();
        return lease < 0
                ? semaphore.tryAcquire(wait, MILLISECONDS)
                : semaphore.tryAcquire(wait, lease, MILLISECONDS);
    }

    /** Takes a permit, notes when, and gives it back. */
    private Answers.Timed acquireWhenFree() throws InterruptedException {
        String id = semaphore.acquire();
        long at = System.nanoTime();
        semaphore.release(id);
        return new Answers.Timed(null, at);
    }

    /** Takes a permit again and again on several threads, and counts on the server how many are inside. */
    private Map<String, Object> hammer() throws Exception {
        int threads = request.get("threads").getAsInt();
        int rounds = request.get("rounds").getAsInt();
        var inside = redisson.getAtomicLong(request.get("inside").getAsString());
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<long[]>> jobs = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            jobs.add(() -> {
                long most = 0;
                long longest = 0;
                for (int round = 0; round < rounds; round++) {
                    long asked = System.nanoTime();
                    String id = semaphore.acquire();
                    longest = Math.max(longest, System.nanoTime() - asked);
                    most = Math.max(most, inside.incrementAndGet());
                    inside.decrementAndGet();
                    semaphore.release(id);
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
