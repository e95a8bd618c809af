package tidelock.peer;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes one line for each command. The times are System.nanoTime, which is CLOCK_MONOTONIC on Linux. */
final class Answers {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private Answers() {}

    static void done(long id, long started, Object value) {
        long finished = value instanceof Timed timed ? timed.doneAt() : System.nanoTime();
        Object shown = value instanceof Timed timed ? timed.value() : value;
        write(id, started, finished, "value", shown);
    }

    static void failed(long id, long started, Throwable error) {
        write(id, started, System.nanoTime(), "error",
                Map.of("class", error.getClass().getName(), "message", String.valueOf(error.getMessage())));
    }

    private static void write(long id, long started, long finished, String key, Object value) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", id);
        answer.put("started_at_ns", started);
        answer.put("done_at_ns", finished);
        answer.put(key, value);
        String line = GSON.toJson(answer);
        synchronized (OUT) {
            OUT.print(line + "\n");
            OUT.flush();
        }
    }

    /** A value whose time of completion is earlier than the end of the command. */
    record Timed(Object value, long doneAt) {}
}
