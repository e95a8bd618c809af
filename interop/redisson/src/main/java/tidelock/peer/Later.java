package tidelock.peer;

import java.lang.reflect.InvocationTargetException;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Kinds of lock by reflection: one source serves every version, and RSpinLock does not exist before 3.15, RFencedLock not
 * before 3.19.
 */
final class Later {
    private Later() {}

    /** Calls a method of the client that answers with the lock of that name. */
    static RLock lock(RedissonClient redisson, String method, String name) throws Exception {
        try {
            return (RLock) RedissonClient.class.getMethod(method, String.class).invoke(redisson, name);
        } catch (NoSuchMethodException error) {
            throw new UnsupportedOperationException("this Redisson has no " + method);
        }
    }

    /** Calls a method of RFencedLock without arguments that answers with a token, or null. */
    static Long token(RLock lock, String method) throws Exception {
        try {
            return (Long) Class.forName("org.redisson.api.RFencedLock").getMethod(method).invoke(lock);
        } catch (InvocationTargetException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }
}
