package tidelock.curator;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A Java process with one InterProcessMutex and one InterProcessReadWriteLock of the same path, told what to do by lines
 * on stdin.
 *
 * <p>Arguments: {@code host:port}, the path of the lock, the session timeout in milliseconds. Commands: {@code acquire},
 * {@code try MS}, {@code release}, and {@code hammer ROUNDS THREADS WORD_FILE HOLD_US}, for the mutex; with {@code read}
 * or {@code write} behind them for that side of the other lock, and with {@code sides} a hammer takes them in turns. Answers
 * begin with System.nanoTime, which is CLOCK_MONOTONIC on Linux.
 */
public final class Peer {
    private Peer() {}

    public static void main(String[] args) throws Exception {
        var retry = new ExponentialBackoffRetry(100, 10);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], Integer.parseInt(args[2]), 5000, retry);
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no ZooKeeper at " + args[0]);
        }
        Locks locks = new Locks(
                new InterProcessMutex(client, args[1]), new InterProcessReadWriteLock(client, args[1]));
        say("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                obey(locks, words);
            } catch (Exception error) {
                say("failed " + words[0] + " " + error);
            }
        }
        // As a killed process: its session ends in its own time.
        Runtime.getRuntime().halt(0);
    }

    /** What a command may be about. */
    private record Locks(InterProcessMutex mutex, InterProcessReadWriteLock sides) {
        InterProcessMutex named(String[] words, int at) {
            if (words.length <= at) {
                return mutex;
            }
            return switch (words[at]) {
                case "read" -> sides.readLock();
                case "write" -> sides.writeLock();
                default -> throw new IllegalArgumentException("no such side");
            };
        }

        Hammer hammer(String[] words) {
            boolean both = words.length > 5 && words[5].equals("sides");
            return both
                    ? new Hammer(sides.readLock(), sides.writeLock(), words)
                    : new Hammer(null, mutex, words);
        }
    }

    private static void obey(Locks locks, String[] words) throws Exception {
        switch (words[0]) {
            case "acquire" -> {
                locks.named(words, 1).acquire();
                say("acquired");
            }
            case "try" -> {
                long patience = Long.parseLong(words[1]);
                boolean got = locks.named(words, 2).acquire(patience, TimeUnit.MILLISECONDS);
                say(got ? "acquired" : "refused");
            }
            case "release" -> {
                locks.named(words, 1).release();
                say("released");
            }
            case "hammer" -> say(locks.hammer(words).run());
            default -> throw new IllegalArgumentException("no such command");
        }
    }

    private static void say(String text) {
        System.out.println(System.nanoTime() + " " + text);
        System.out.flush();
    }
}
