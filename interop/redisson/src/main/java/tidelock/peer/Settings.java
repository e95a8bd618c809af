package tidelock.peer;

import java.util.List;
import java.util.stream.Stream;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SingleServerConfig;

/** Turns the arguments into a Redisson configuration with small pools: several peers share a small machine. */
final class Settings {
    private Settings() {}

    static Config config(String url, long watchdogMs) {
        Address address = Address.parse(url);
        Config config = new Config();
        // The default codec of old Redisson needs modules that newer JDKs keep closed; locks never use it.
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(watchdogMs);
        config.setThreads(4);
        config.setNettyThreads(4);
        switch (address.scheme) {
            case "redis", "rediss" -> single(config.useSingleServer(), address);
            case "redis+sentinel" -> sentinel(config.useSentinelServers(), address);
            case "redis+cluster" -> cluster(config.useClusterServers(), address);
            default -> throw new IllegalArgumentException("the peer cannot speak to " + address.scheme + ": yet");
        }
        return config;
    }

    @SuppressWarnings({"deprecation", "removal"})
    private static void single(SingleServerConfig server, Address address) {
        server.setAddress(address.nodes().findFirst().orElseThrow());
        server.setConnectionMinimumIdleSize(1).setConnectionPoolSize(8);
        server.setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        server.setDnsMonitoringInterval(-1);
        if (!address.path.isEmpty()) {
            server.setDatabase(Integer.parseInt(address.path));
        }
        enter(server, address);
    }

    private static void sentinel(SentinelServersConfig servers, Address address) {
        address.nodes().forEach(servers::addSentinelAddress);
        servers.setMasterName(address.path);
        small(servers);
        enter(servers, address);
    }

    private static void cluster(ClusterServersConfig servers, Address address) {
        address.nodes().forEach(servers::addNodeAddress);
        servers.setScanInterval(1000);
        small(servers);
        enter(servers, address);
    }

    private static void small(BaseMasterSlaveServersConfig<?> servers) {
        servers.setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(8);
        servers.setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4);
        servers.setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        servers.setDnsMonitoringInterval(-1);
    }

    @SuppressWarnings({"deprecation", "removal"})
    private static void enter(BaseConfig<?> servers, Address address) {
        if (address.user != null) {
            servers.setUsername(address.user);
        }
        if (address.password != null) {
            servers.setPassword(address.password);
        }
    }

    /** {@code scheme://user:password@host:port,host:port/path}. Java's own URI knows one host only. */
    private static final class Address {
        final String scheme;
        final String path;
        final String user;
        final String password;
        private final List<String> places;

        private Address(String scheme, String path, String user, String password, List<String> places) {
            this.scheme = scheme;
            this.path = path;
            this.user = user;
            this.password = password;
            this.places = places;
        }

        static Address parse(String url) {
            String[] halves = url.split("\\?", 2)[0].split("://", 2);
            String[] parts = halves[1].split("/", 2);
            int at = parts[0].lastIndexOf('@');
            String[] login = at < 0 ? new String[0] : parts[0].substring(0, at).split(":", 2);
            String user = login.length > 0 && !login[0].isEmpty() ? login[0] : null;
            String password = login.length > 1 ? login[1] : null;
            List<String> places = List.of(parts[0].substring(at + 1).split(","));
            return new Address(halves[0], parts.length > 1 ? parts[1] : "", user, password, places);
        }

        /** As Redisson wants them. */
        Stream<String> nodes() {
            String plain = scheme.split("\\+", 2)[0];
            return places.stream().map(place -> plain + "://" + place);
        }
    }
}
