package tidelock.curator;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A Java process with one InterProcessMutex, told what to do by lines on stdin.
 *
 * <p>Arguments: {@code host:port}, the path of the lock, the session timeout in milliseconds. Commands: {@code acquire},
 * {@code try MS}, {@code release}, and {@code hammer ROUNDS THREADS WORD_FILE HOLD_US}. Answers begin with
 * System.nanoTime, which is CLOCK_MONOTONIC on Linux.
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
        InterProcessMutex lock = new InterProcessMutex(client, args[1]);
        say("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                obey(lock, words);
            } catch (Exception error) {
                say("failed " + words[0] + " " + error);
            }
        }
        // As a killed process: its session ends in its own time.
        Runtime.getRuntime().halt(0);
    }

    private static void obey(InterProcessMutex lock, String[] words) throws Exception {
        switch (words[0]) {
            case "acquire" -> {
                lock.acquire();
                say("acquired");
            }
            case "try" -> say(lock.acquire(Long.parseLong(words[1]), TimeUnit.MILLISECONDS) ? "acquired" : "refused");
            case "release" -> {
                lock.release();
                say("released");
            }
            case "hammer" -> say(new Hammer(lock, words).run());
            default -> throw new IllegalArgumentException("no such command");
        }
    }

    private static void say(String text) {
        System.out.println(System.nanoTime() + " " + text);
        System.out.flush();
    }
}
