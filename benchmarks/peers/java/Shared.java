import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.LongSupplier;

/** What the clients of all peers have in common: their task, their rounds, and their latencies. */
final class Shared {
    static final int CHUNK_MESSAGES = 1_000;
    static final long COMMIT_PERIOD_NS = 100_000_000L;
    static final long PROBE_PERIOD_MS = 20;
    static final long ARRIVAL_PATIENCE_NS = 60_000_000_000L;
    /** Transactions that are left open are begun so many at a time. */
    static final int OPENED_AT_ONCE = 16;
    /** More than any measurement lasts, and no more than Kafka's broker permits by default. */
    static final int OPEN_TIMEOUT_MS = 900_000;

    private Shared() {}

    /** The settings of a piece of work, from arguments of the form name=value. */
    static final class Task {
        private final Map<String, String> settings = new HashMap<>();

        Task(String[] arguments) {
            for (String argument : arguments) {
                int middle = argument.indexOf('=');
                settings.put(argument.substring(0, middle), argument.substring(middle + 1));
            }
        }

        String text(String name) {
            String found = settings.get(name);
            if (found == null) {
                throw new IllegalArgumentException("the task has no setting " + name);
            }
            return found;
        }

        int number(String name) {
            return Integer.parseInt(text(name));
        }

        int number(String name, int otherwise) {
            return settings.containsKey(name) ? number(name) : otherwise;
        }

        long nanoseconds(String name) {
            return (long) (Double.parseDouble(text(name)) * 1e9);
        }

        byte[] value() {
            return new byte[number("message_bytes")];
        }

        /** The stretches of time to work for; the first one is to warm up. */
        List<Stretch> rounds() {
            List<Stretch> found = new ArrayList<>();
            found.add(new Stretch(false, nanoseconds("warm_up_seconds")));
            for (int number = 0; number < number("rounds"); number++) {
                found.add(new Stretch(true, nanoseconds("seconds")));
            }
            return found;
        }

        /** Whether a reading of a whole stream is measured; to warm up, at least one is not. */
        Iterable<Boolean> readings() {
            long warmAtNs = System.nanoTime() + nanoseconds("warm_up_seconds");
            return () -> new Iterator<>() {
                private boolean warm = false;
                private int left = number("rounds");

                @Override
                public boolean hasNext() {
                    return left > 0;
                }

                @Override
                public Boolean next() {
                    boolean measured = warm && System.nanoTime() >= warmAtNs;
                    warm = true;
                    left -= measured ? 1 : 0;
                    return measured;
                }
            };
        }
    }

    /** A stretch of time to work for. */
    record Stretch(boolean measured, long ns) {}

    /** What a reader receives: how long each message was on its way. */
    abstract static class Arrivals {
        private volatile Latencies latencies = new Latencies();

        final Latencies latencies() {
            return latencies;
        }

        /** Forget what was received until now. */
        final void reset() {
            latencies = new Latencies();
        }

        final void received(byte[] value) {
            if (value.length >= Long.BYTES) {
                latencies.add(System.nanoTime() - ByteBuffer.wrap(value).getLong());
            }
        }

        final void await(long count) throws InterruptedException {
            long deadlineNs = System.nanoTime() + ARRIVAL_PATIENCE_NS;
            while (latencies.count() < count && System.nanoTime() < deadlineNs) {
                Thread.sleep(1);
            }
        }
    }

    /** A value that says when it was made. */
    static byte[] stamped(int size) {
        return ByteBuffer.allocate(size).putLong(0, System.nanoTime()).array();
    }

    /** Nanoseconds that were measured, sorted when the first quantile is asked for. */
    static final class Latencies {
        private long[] values = new long[1024];
        private int count = 0;

        synchronized void add(long nanoseconds) {
            if (count == values.length) {
                values = Arrays.copyOf(values, count * 2);
            }
            values[count++] = nanoseconds;
        }

        synchronized int count() {
            return count;
        }

        synchronized String asJson() {
            long[] sorted = Arrays.copyOf(values, count);
            Arrays.sort(sorted);
            return String.format(
                    java.util.Locale.ROOT,
                    "{\"p50\": %.4f, \"p99\": %.4f, \"p99.9\": %.4f, \"count\": %d}",
                    at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), count);
        }

        private static double at(long[] sorted, double fraction) {
            if (sorted.length == 0) {
                return 0;
            }
            return sorted[Math.min((int) (sorted.length * fraction), sorted.length - 1)] / 1e6;
        }
    }

    /** A measured stretch of time; whoever started this program measures the servers meanwhile. */
    static final class Round {
        private final boolean measured;
        private final long cpuBeganNs;
        private final long beganNs;
        private long elapsedNs;
        private long cpuUsedNs;

        private Round(boolean measured) {
            this.measured = measured;
            if (measured) {
                say("{\"event\": \"begin\"}");
            }
            cpuBeganNs = cpuNs();
            beganNs = System.nanoTime();
        }

        /** Begin a round; one that is not measured says nothing. */
        static Round begin(boolean measured) {
            return new Round(measured);
        }

        void end() {
            elapsedNs = System.nanoTime() - beganNs;
            cpuUsedNs = cpuNs() - cpuBeganNs;
            if (measured) {
                say("{\"event\": \"end\"}");
            }
        }

        /** Tell what was measured, once all that was sent has arrived, or too long after it. */
        void result(
                String variant, long count, long expected, LongSupplier arrived,
                Map<String, Latencies> latencies) throws InterruptedException {
            long deadlineNs = System.nanoTime() + ARRIVAL_PATIENCE_NS;
            long found = arrived.getAsLong();
            while (found != expected && System.nanoTime() < deadlineNs) {
                Thread.sleep(20);
                found = arrived.getAsLong();
            }
            if (!measured) {
                return;
            }
            StringBuilder shown = new StringBuilder();
            for (Map.Entry<String, Latencies> one : latencies.entrySet()) {
                shown.append(shown.length() == 0 ? "" : ", ");
                shown.append('"').append(one.getKey()).append("\": ").append(one.getValue().asJson());
            }
            say(String.format(
                    java.util.Locale.ROOT,
                    "{\"event\": \"result\", \"variant\": \"%s\", \"count\": %d, \"expected\": %d, "
                            + "\"arrived\": %d, \"seconds\": %.6f, \"client_cpu_s\": %.6f, "
                            + "\"latencies_ms\": {%s}}",
                    variant, count, expected, found, elapsedNs / 1e9, cpuUsedNs / 1e9, shown));
        }

        void result(long count, long expected, LongSupplier arrived) throws InterruptedException {
            result(count, expected, arrived, Map.of());
        }

        void result(
                long count, long expected, LongSupplier arrived, Map<String, Latencies> latencies)
                throws InterruptedException {
            result("", count, expected, arrived, latencies);
        }
    }

    /** An action as a supplier: what it throws ends the program. */
    static LongSupplier counted(Callable<Long> action) {
        return () -> {
            try {
                return action.call();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        };
    }

    /** Fail unless as many transactions are open as were left so. */
    static void checkOpen(long expected, long found) {
        if (found != expected) {
            throw new IllegalStateException(
                    found + " transactions are open, and not " + expected);
        }
    }

    /** Send at a fixed rate: call the action as often as the time that has passed asks for. */
    static long paced(long rate, long durationNs, Runnable send) throws InterruptedException {
        long beganNs = System.nanoTime();
        long sent = 0;
        long elapsedNs;
        while ((elapsedNs = System.nanoTime() - beganNs) < durationNs) {
            for (long due = elapsedNs * rate / 1_000_000_000L; sent < due; sent++) {
                send.run();
            }
            Thread.sleep(1);
        }
        return sent;
    }

    /** Start a thread for each number below a count, and wait for all; an error ends the program. */
    static void together(int count, Worker work) throws InterruptedException {
        Thread[] threads = new Thread[count];
        for (int number = 0; number < count; number++) {
            threads[number] = begin(work, number);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static Thread begin(Worker work, int number) {
        Thread thread = new Thread(() -> {
            try {
                work.run(number);
            } catch (Throwable error) {
                fail(error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** What a thread does, given its number. */
    interface Worker {
        void run(int number) throws Exception;
    }

    static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean)
                        ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }
}
