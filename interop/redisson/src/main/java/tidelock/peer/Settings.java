package tidelock.peer;

import java.net.URI;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Turns the arguments into a Redisson configuration with small pools: several peers share a small machine. */
final class Settings {
    private Settings() {}

    static Config config(String url, long watchdogMs) {
        URI uri = URI.create(url);
        Config config = new Config();
        // The default codec of old Redisson needs modules that newer JDKs keep closed; locks never use it.
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(watchdogMs);
        config.setThreads(4);
        config.setNettyThreads(4);
        switch (uri.getScheme()) {
            case "redis", "rediss" -> single(config.useSingleServer(), uri);
            default -> throw new IllegalArgumentException("the peer cannot speak to " + uri.getScheme() + ": yet");
        }
        return config;
    }

    @SuppressWarnings({"deprecation", "removal"})
    private static void single(SingleServerConfig server, URI uri) {
        server.setAddress(uri.getScheme() + "://" + uri.getHost() + ":" + uri.getPort());
        server.setConnectionMinimumIdleSize(1).setConnectionPoolSize(8);
        server.setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        server.setDnsMonitoringInterval(-1);
        if (uri.getPath() != null && uri.getPath().length() > 1) {
            server.setDatabase(Integer.parseInt(uri.getPath().substring(1)));
        }
        if (uri.getUserInfo() != null) {
            String[] parts = uri.getUserInfo().split(":", 2);
            if (!parts[0].isEmpty()) {
                server.setUsername(parts[0]);
            }
            server.setPassword(parts[1]);
        }
    }
}
