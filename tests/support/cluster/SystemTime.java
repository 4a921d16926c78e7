package org.apache.kafka.common.utils;

import java.util.function.Supplier;
import org.apache.kafka.common.errors.TimeoutException;

/** Kafka's clock with a wrong wall clock: it differs by the property `tallystream.clock.offset.ms`. */
class SystemTime implements Time {
    private static final SystemTime SYSTEM_TIME = new SystemTime();
    private static final long OFFSET_MS = Long.getLong("tallystream.clock.offset.ms", 0L);

    public static SystemTime getSystemTime() {
        return SYSTEM_TIME;
    }

    @Override
    public long milliseconds() {
        return System.currentTimeMillis() + OFFSET_MS;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        synchronized (object) {
            while (!condition.get()) {
                long left = deadlineMs - milliseconds();
                if (left <= 0) {
                    throw new TimeoutException("the condition was not met by the deadline");
                }
                object.wait(left);
            }
        }
    }
}
