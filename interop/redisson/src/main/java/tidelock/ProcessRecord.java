package tidelock;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.net.InetAddress;
import java.net.URLEncoder;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * Shows a JVM in {@code tidelock top}: its host, process id, program and version, and what it waits for. Copy this class
 * into your service; it needs Redisson only. It writes one record of some hundred bytes every ten seconds, or every second
 * while somebody watches, and nothing when a lock is taken. The text is in tidelock's docs/wire-protocol.md.
 */
public final class ProcessRecord implements AutoCloseable {
    private static final List<Object> KEYS =
            List.of("tidelock:marks:{tidelock:processes}", "tidelock:mark_ends:{tidelock:processes}");
    private static final String WRITE = """
            local time = redis.call('time')
            local now = time[1] * 1000 + math.floor(time[2] / 1000)
            local watched = redis.call('zscore', KEYS[2], 'watchers')
            local beat = watched and tonumber(watched) > now and 1000 or 10000
            local record = ARGV[2] .. ' beat=' .. beat .. ' written=' .. string.format('%.0f', now)
            local gone = redis.call('zrangebyscore', KEYS[2], '-inf', string.format('%.0f', now), 'limit', 0, 100)
            for _, process in ipairs(gone) do
              redis.call('zrem', KEYS[2], process)
              redis.call('hdel', KEYS[1], process)
            end
            redis.call('hset', KEYS[1], ARGV[1], record)
            redis.call('zadd', KEYS[2], string.format('%.0f', now + 60000), ARGV[1])
            for _, key in ipairs(KEYS) do
              redis.call('pexpire', key, math.max(redis.call('pttl', key), 60000))
            end
            return tostring(beat)""";

    private record Waits(int count, long since) {}

    private final RedissonClient redisson;
    private final String self;
    private final Map<String, Waits> waits = new ConcurrentHashMap<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "tidelock-process-record");
        thread.setDaemon(true);
        return thread;
    });
    private volatile long latencyMicros;

    public ProcessRecord(RedissonClient redisson, String program, String version) throws Exception {
        this.redisson = redisson;
        self = "process1 host=" + word(InetAddress.getLocalHost().getHostName()) + " pid="
                + ProcessHandle.current().pid() + " program=" + word(program) + " version=" + word(version)
                + " since=" + System.currentTimeMillis();
        timer.execute(this::beat);
    }

    /** Runs {@code acquire}, such as {@code () -> { lock.lock(); return null; }}, and shows it as a waiter meanwhile. */
    public <T> T waiting(String lock, Callable<T> acquire) throws Exception {
        waits.merge(lock, new Waits(1, System.nanoTime()), (old, one) -> new Waits(old.count + 1, old.since));
        try {
            return acquire.call();
        } finally {
            waits.computeIfPresent(lock, (name, old) -> old.count == 1 ? null : new Waits(old.count - 1, old.since));
        }
    }

    private void beat() {
        long next = 10_000;
        try {
            long begun = System.nanoTime();
            String beat = redisson.getScript(StringCodec.INSTANCE).eval(
                    RScript.Mode.READ_WRITE, WRITE, RScript.ReturnType.VALUE, KEYS, redisson.getId(), text(begun));
            latencyMicros = (System.nanoTime() - begun) / 1000;
            next = Long.parseLong(beat);
        } catch (RuntimeException error) {
            // Redis does not answer, or the user may not write the record: the locks do not need it.
        }
        if (!timer.isShutdown()) {
            timer.schedule(this::beat, next, MILLISECONDS);
        }
    }

    private String text(long now) {
        var text = new StringBuilder(self).append(" latency=").append(latencyMicros);
        var all = List.copyOf(waits.entrySet());
        text.append(" waiting=").append(all.stream().mapToInt(one -> one.getValue().count).sum());
        all.stream().sorted((a, b) -> Long.compare(a.getValue().since - b.getValue().since, 0)).limit(20).forEach(one ->
                text.append(" wait=java,").append(one.getValue().count).append(',')
                        .append((now - one.getValue().since) / 1_000_000).append(',').append(word(one.getKey())));
        return text.toString();
    }

    private static String word(String text) {
        return URLEncoder.encode(text, UTF_8).replace("+", "%20");
    }

    /** Ends the record. Redis forgets it within three beats. */
    @Override
    public void close() {
        timer.shutdownNow();
    }
}
