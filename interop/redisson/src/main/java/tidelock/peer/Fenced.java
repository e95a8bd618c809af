package tidelock.peer;

import java.lang.reflect.InvocationTargetException;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** RFencedLock by reflection: it does not exist before Redisson 3.19, and one source serves both versions. */
final class Fenced {
    private Fenced() {}

    static RLock of(RedissonClient redisson, String name) throws Exception {
        try {
            return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(redisson, name);
        } catch (NoSuchMethodException error) {
            throw new UnsupportedOperationException("this Redisson has no fenced lock");
        }
    }

    /** Calls a method without arguments that answers with a token, or null. */
    static Long token(RLock lock, String method) throws Exception {
        try {
            return (Long) Class.forName("org.redisson.api.RFencedLock").getMethod(method).invoke(lock);
        } catch (InvocationTargetException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }
}
