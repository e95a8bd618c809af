package tidelock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Uses locks as a worker process of the fault matrix does, and writes the same history. It says {@code ready}, and stops when
 * its stdin ends.
 *
 * <p>Redisson tells nobody that a lock was lost. So a thread acts on its lock from the return of the call that takes it until it
 * calls {@code unlock}.
 *
 * <p>The lines {@code long}, {@code eager} and {@code usual} say how the task that holds for long uses its lock.
 *
 * <p>Arguments: the URLs with spaces between them; the file for the history; the number of the process; the prefix of the lock
 * names; the watchdog timeout in milliseconds; a seed; what the boot clock is ahead of the monotonic clock, in nanoseconds.
 */
public final class Worker {
    private static final long PACE_MS = 10;
    private static final long RETRY_MS = 50;

    private final OutputStream history;
    private final String process;
    private final long leaseMs;
    private final long seed;
    private final long bootAheadNs;
    private volatile String manner = "usual";
    private volatile boolean stopped;

    private Worker(String[] args) throws IOException {
        history = new FileOutputStream(args[1], true);
        process = args[2];
        leaseMs = Long.parseLong(args[4]);
        seed = Long.parseUnsignedLong(args[5]);
        bootAheadNs = Long.parseLong(args[6]);
    }

    public static void main(String[] args) throws Exception {
        List<RedissonClient> servers = new ArrayList<>();
        for (String url : args[0].split(" ")) {
            servers.add(Redisson.create(Settings.config(url, Long.parseLong(args[4]))));
        }
        new Worker(args).run(servers, args[3]);
        // Redisson's threads would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    /** How a thread uses its lock. */
    private enum Role {
        KEEPER,
        TRADER,
        RELAY
    }

    private void run(List<RedissonClient> servers, String base) throws Exception {
        List<Thread> threads = new ArrayList<>();
        Role[] roles = {Role.KEEPER, Role.TRADER, Role.TRADER, Role.RELAY};
        for (Role role : roles) {
            String name = base
                    + switch (role) {
                        case KEEPER -> "-keep-" + process + "-0";
                        case TRADER -> "-trade";
                        case RELAY -> "-relay";
                    };
            String task = process + "." + (threads.size() + 1);
            var random = new SplittableRandom(seed ^ Long.parseLong(process) << 32 ^ threads.size());
            RLock lock = lock(servers, name);
            threads.add(new Thread(() -> work(role, lock, name, task, random), "task " + task));
        }
        threads.forEach(Thread::start);
        System.out.println("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            manner = line;
        }
        stopped = true;
        threads.forEach(Thread::interrupt);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("done");
    }

    @SuppressWarnings("deprecation")
    private static RLock lock(List<RedissonClient> servers, String name) {
        RLock[] all = servers.stream().map(server -> server.getLock(name)).toArray(RLock[]::new);
        return all.length == 1 ? all[0] : new RedissonRedLock(all);
    }

    private void work(Role role, RLock lock, String name, String task, SplittableRandom random) {
        for (long number = 1; !stopped; number++) {
            String id = task + "." + number;
            note(id, "asked", name, "");
            long waitMs = manner(role).equals("eager") ? leaseMs / 8 : leaseMs * 4;
            try {
                if (!lock.tryLock(waitMs, -1, MILLISECONDS)) {
                    note(id, "failed", name, " kind=TimedOut");
                    continue;
                }
            } catch (InterruptedException stop) {
                note(id, "failed", name, " kind=Stopped");
                return;
            } catch (RuntimeException error) {
                note(id, "failed", name, " kind=" + error.getClass().getSimpleName());
                pause(RETRY_MS);
                continue;
            }
            note(id, "granted", name, " token=none until=" + (now() + leaseMs * 1_000_000));
            hold(role, id, name, random);
            unlock(lock, id, name);
            pause(role == Role.RELAY ? leaseMs / 3 : random.nextLong(1, 20));
        }
    }

    private String manner(Role role) {
        return role == Role.RELAY ? manner : "usual";
    }

    private void hold(Role role, String id, String name, SplittableRandom random) {
        long timeMs = switch (role) {
            case KEEPER -> 3_600_000;
            case TRADER -> random.nextLong(1, 30);
            case RELAY -> (long) (leaseMs * (0.2 + random.nextDouble() * 0.6));
        };
        long longerMs = switch (manner(role)) {
            case "long" -> (long) (leaseMs * (2 + random.nextDouble()));
            case "eager" -> (long) (leaseMs * (1.3 + random.nextDouble() * 0.3));
            default -> timeMs;
        };
        long from = System.nanoTime();
        long pace = role == Role.KEEPER ? PACE_MS * 2 : PACE_MS;
        while (!stopped) {
            long time = manner(role).equals("usual") ? timeMs : longerMs;
            if (System.nanoTime() - from >= time * 1_000_000) {
                return;
            }
            pause(Math.min(pace, timeMs));
            note(id, "step", name, " until=" + (now() + leaseMs * 1_000_000));
        }
    }

    private void unlock(RLock lock, String id, String name) {
        // A thread that is interrupted could not wait for the answer.
        Thread.interrupted();
        note(id, "left", name, "");
        try {
            lock.unlock();
            note(id, "released", name, "");
        } catch (RuntimeException error) {
            note(id, "unreleased", name, " kind=" + error.getClass().getSimpleName());
        }
    }

    private static void pause(long timeMs) {
        LockSupport.parkNanos(timeMs * 1_000_000);
    }

    private long now() {
        return System.nanoTime() + bootAheadNs;
    }

    /** One write for each line, so that a killed process leaves whole lines only. */
    private void note(String id, String event, String name, String fields) {
        String line = now() + " " + id + " " + event + " " + name + fields + "\n";
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException("the history cannot be written", error);
        }
    }
}
