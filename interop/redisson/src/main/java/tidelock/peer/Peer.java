package tidelock.peer;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * A Java process that does with Redisson what it is told on stdin: one JSON object a line, for instance
 * {@code {"id":1,"worker":"a","do":"lock","name":"x"}}. Answers come on stdout in the order of completion, with the id.
 *
 * <p>Arguments: the Redis URL, or several with spaces between them for a majority of servers; the watchdog timeout in
 * milliseconds.
 */
public final class Peer {
    private static final Map<String, ExecutorService> WORKERS = new ConcurrentHashMap<>();

    private Peer() {}

    public static void main(String[] args) throws Exception {
        List<RedissonClient> servers = new ArrayList<>();
        try {
            for (String url : args[0].split(" ")) {
                servers.add(Redisson.create(Settings.config(url, Long.parseLong(args[1]))));
            }
        } catch (Exception error) {
            Answers.failed(0, System.nanoTime(), error);
            Runtime.getRuntime().halt(1);
            return;
        }
        Answers.done(0, System.nanoTime(), servers.get(0).getId());
        serve(new Commands(servers));
        // The end of stdin is the end of the test that drives us: go at once and leave locks as a killed process does.
        Runtime.getRuntime().halt(0);
    }

    private static void serve(Commands commands) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            worker(request.get("worker").getAsString()).execute(() -> run(commands, request));
        }
    }

    /** Redisson's locks belong to threads, so each worker name is one thread for the life of the process. */
    private static ExecutorService worker(String name) {
        return WORKERS.computeIfAbsent(name, n -> Executors.newSingleThreadExecutor(task -> new Thread(task, n)));
    }

    private static void run(Commands commands, JsonObject request) {
        long id = request.get("id").getAsLong();
        long started = System.nanoTime();
        try {
            Answers.done(id, started, commands.run(request));
        } catch (Throwable error) {
            Answers.failed(id, started, error);
        }
    }
}
