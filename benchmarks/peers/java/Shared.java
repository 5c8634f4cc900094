import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.LongSupplier;

/** What the clients of all peers have in common: their task, their rounds, and their latencies. */
final class Shared {
    static final int CHUNK_MESSAGES = 1_000;
    static final long COMMIT_PERIOD_NS = 100_000_000L;
    static final long PROBE_PERIOD_MS = 20;
    static final long ARRIVAL_PATIENCE_NS = 60_000_000_000L;

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
        private final long cpuBeganNs = cpuNs();
        private final long beganNs;
        private long elapsedNs;
        private long cpuUsedNs;

        private Round() {
            say("{\"event\": \"begin\"}");
            beganNs = System.nanoTime();
        }

        static Round begin() {
            return new Round();
        }

        void end() {
            elapsedNs = System.nanoTime() - beganNs;
            cpuUsedNs = cpuNs() - cpuBeganNs;
            say("{\"event\": \"end\"}");
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
            result("", count, expected, arrived, Map.of());
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

    static Map<String, Latencies> named(String name, Latencies latencies) {
        Map<String, Latencies> found = new LinkedHashMap<>();
        found.put(name, latencies);
        return found;
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
