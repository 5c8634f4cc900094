import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Messages;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.transaction.Transaction;

/** The rows of the comparison for Pulsar, with its Java client. */
final class PulsarPeer extends PulsarAccess {
    private static final int INPUTS_PER_S_MAX = 5_000;

    private PulsarPeer(Shared.Task task) throws Exception {
        super(task);
    }

    public static void main(String[] arguments) throws Exception {
        Shared.Task task = new Shared.Task(arguments);
        PulsarPeer peer = new PulsarPeer(task);
        switch (task.text("work")) {
            case "fill" -> peer.fill();
            case "transactions" -> peer.transactions();
            case "produce" -> peer.produce();
            case "consume" -> peer.consume();
            case "transactional" -> peer.transactional();
            case "hanging" -> peer.hanging();
            case "transform" -> peer.transform();
            case "tailing" -> peer.tailing();
            case "restart" -> peer.restart();
            default -> throw new IllegalArgumentException("unknown work");
        }
        Runtime.getRuntime().halt(0);
    }

    private void fill() throws Exception {
        Shared.Round round = Shared.Round.begin();
        int count = task.number("count");
        Producer<byte[]> producer = producer();
        byte[] value = task.value();
        for (int sent = 0; sent < count; sent++) {
            confirmed(producer.sendAsync(value));
        }
        producer.flush();
        round.end();
        round.result(count, count, Shared.counted(() -> stored(topic)));
    }

    private void transactions() throws Exception {
        int workers = task.number("at_once");
        byte[] value = task.value();
        String inputs = topic + "-inputs";
        create(inputs);
        List<Producer<byte[]>> producers = eachPartition(topic);
        List<Producer<byte[]>> inputProducers = eachPartition(inputs);
        Consumer<byte[]> consumer = consumer(inputs, "inputs", true);
        ConcurrentLinkedQueue<MessageId> received = new ConcurrentLinkedQueue<>();
        for (int number = 0; number <= task.number("rounds"); number++) {
            long durationNs = task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds");
            long needed = workers + (long) INPUTS_PER_S_MAX * durationNs / 1_000_000_000L;
            long missing = needed - received.size();
            for (int one = 0; one < missing; one++) {
                confirmed(inputProducers.get(one % partitions).sendAsync(value));
            }
            while (missing > 0) {
                Messages<byte[]> some = consumer.batchReceive();
                some.forEach(message -> received.add(message.getMessageId()));
                missing -= some.size();
            }
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long deadlineNs = System.nanoTime() + durationNs;
            Shared.together(workers, worker -> {
                for (int first = worker; System.nanoTime() < deadlineNs; first++) {
                    MessageId input = received.poll();
                    if (input == null) {
                        return;
                    }
                    Transaction txn = transaction();
                    for (int step = 0; step < 2; step++) {
                        confirmed(producers.get((first + step) % partitions)
                                .newMessage(txn).value(value).sendAsync());
                    }
                    confirmed(consumer.acknowledgeAsync(input, txn));
                    long calledNs = System.nanoTime();
                    txn.commit().get();
                    commits.add(System.nanoTime() - calledNs);
                }
            });
            long finished = commits.count();
            if (round != null) {
                round.end();
                round.result("", finished, 2 * finished,
                        Shared.counted(() -> stored(topic) - before),
                        Shared.named("commit()", commits));
            }
        }
    }

    private void produce() throws Exception {
        boolean inTurn = task.number("in_turn", 0) == 1;
        List<Producer<byte[]>> producers =
                inTurn ? eachPartitionBatched(topic) : List.of(producer());
        byte[] value = task.value();
        for (int number = 0; number <= task.number("rounds"); number++) {
            long before = stored(topic);
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long deadlineNs = System.nanoTime()
                    + task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds");
            long sent = 0;
            while (System.nanoTime() < deadlineNs) {
                for (int step = 0; step < Shared.CHUNK_MESSAGES; step++) {
                    confirmed(producers.get((int) (sent++ % producers.size())).sendAsync(value));
                }
            }
            flush(producers);
            if (round != null) {
                round.end();
                round.result(sent, sent, Shared.counted(() -> stored(topic) - before));
            }
        }
    }

    private void consume() throws Exception {
        long expected = task.number("count");
        boolean many = task.text("call").equals("batch call");
        for (int number = 0; number <= task.number("rounds"); number++) {
            String subscription = "round-" + number + (many ? "-many" : "-each");
            Consumer<byte[]> consumer = consumer(topic, subscription, true);
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long seen = 0;
            while (seen < expected) {
                if (many) {
                    Messages<byte[]> messages = consumer.batchReceive();
                    for (Message<byte[]> message : messages) {
                        seen += message.getValue().length > 0 ? 1 : 0;
                    }
                    confirmed(consumer.acknowledgeAsync(messages));
                } else {
                    Message<byte[]> message = consumer.receive();
                    seen += message.getValue().length > 0 ? 1 : 0;
                    confirmed(consumer.acknowledgeAsync(message));
                }
            }
            // Acks that are still grouped are sent.
            consumer.close();
            if (round != null) {
                round.end();
                long found = seen;
                round.result(found, stored(topic), () -> found);
            }
        }
    }

    /** The next transaction begins while the last one commits. */
    private void transactional() throws Exception {
        Producer<byte[]> producer = producer();
        byte[] value = task.value();
        for (int number = 0; number <= task.number("rounds"); number++) {
            long durationNs = task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds");
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long deadlineNs = System.nanoTime() + durationNs;
            long sent = 0;
            CompletableFuture<Void> committing = CompletableFuture.completedFuture(null);
            while (System.nanoTime() < deadlineNs) {
                Transaction txn = transaction();
                long commitAtNs = System.nanoTime() + Shared.COMMIT_PERIOD_NS;
                while (System.nanoTime() < commitAtNs) {
                    for (int step = 0; step < Shared.CHUNK_MESSAGES; step++, sent++) {
                        confirmed(producer.newMessage(txn).value(value).sendAsync());
                    }
                }
                committing.get();
                long calledNs = System.nanoTime();
                committing = txn.commit()
                        .thenRun(() -> commits.add(System.nanoTime() - calledNs));
            }
            committing.get();
            if (round != null) {
                round.end();
                round.result("", sent, sent, Shared.counted(() -> stored(topic) - before),
                        Shared.named("commit()", commits));
            }
        }
    }

    private void hanging() throws Exception {
        List<Producer<byte[]>> producers = eachPartition(topic);
        Tail tail = new Tail();
        probe(producers, tail, task.nanoseconds("warm_up_seconds"), null, new LinkedHashMap<>());
        for (boolean withOpen : new boolean[] {false, true}) {
            Transaction hangs = null;
            long before = stored(topic);
            int extra = withOpen ? partitions : 0;
            if (withOpen) {
                hangs = transaction();
                for (Producer<byte[]> producer : producers) {
                    producer.newMessage(hangs).value(new byte[1]).sendAsync().get();
                }
            }
            Map<String, Shared.Latencies> latencies = new LinkedHashMap<>();
            Shared.Round round = Shared.Round.begin();
            long sent = probe(producers, tail, task.nanoseconds("seconds"), hangs, latencies);
            round.end();
            round.result(withOpen ? "one transaction hangs" : "none hangs", sent, sent,
                    Shared.counted(() -> stored(topic) - before - extra), latencies);
        }
    }

    /** Send single messages, each confirmed, abort what hangs, and wait for the reader. */
    private long probe(
            List<Producer<byte[]>> producers, Tail tail, long durationNs, Transaction hangs,
            Map<String, Shared.Latencies> latencies) throws Exception {
        Shared.Latencies sends = new Shared.Latencies();
        tail.reset();
        latencies.put("send", sends);
        latencies.put("send to receive", tail.latencies);
        long deadlineNs = System.nanoTime() + durationNs;
        long sent = 0;
        for (; System.nanoTime() < deadlineNs; sent++) {
            long calledNs = System.nanoTime();
            producers.get((int) (sent % partitions)).send(stamped());
            sends.add(System.nanoTime() - calledNs);
            Thread.sleep(Shared.PROBE_PERIOD_MS);
        }
        if (hangs != null) {
            hangs.abort().get();
        }
        tail.await(sent);
        return sent;
    }

    private void transform() throws Exception {
        long expected = task.number("count");
        String outputs = topic + "-outputs";
        create(outputs);
        List<Producer<byte[]>> producers = eachPartitionBatched(outputs);
        Consumer<byte[]> consumer = consumer(topic, "transform", true, Shared.CHUNK_MESSAGES);
        Shared.Latencies commits = new Shared.Latencies();
        Shared.Round round = Shared.Round.begin();
        long seen = 0;
        while (seen < expected) {
            Messages<byte[]> messages = consumer.batchReceive();
            if (messages.size() == 0) {
                continue;
            }
            Transaction txn = transaction();
            for (Message<byte[]> message : messages) {
                confirmed(producers.get((int) (seen++ % partitions))
                        .newMessage(txn).value(message.getValue()).sendAsync());
            }
            confirmed(consumer.acknowledgeAsync(messages, txn));
            long calledNs = System.nanoTime();
            txn.commit().get();
            commits.add(System.nanoTime() - calledNs);
        }
        round.end();
        round.result("", seen, expected, Shared.counted(() -> stored(outputs)),
                Shared.named("commit()", commits));
    }

    private void tailing() throws Exception {
        List<Producer<byte[]>> producers = eachPartitionBatched(topic);
        byte[] value = task.value();
        Tail tail = new Tail();
        for (int number = 0; number <= task.number("rounds"); number++) {
            long durationNs = task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds");
            long before = stored(topic);
            tail.reset();
            AtomicLong next = new AtomicLong();
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long sent = Shared.paced(task.number("rate"), durationNs, () -> {
                byte[] own = value.clone();
                ByteBuffer.wrap(own).putLong(System.nanoTime());
                confirmed(producers.get((int) (next.getAndIncrement() % partitions)).sendAsync(own));
            });
            tail.await(sent);
            if (round != null) {
                round.end();
                round.result("", sent, sent, Shared.counted(() -> stored(topic) - before),
                        Shared.named("send to receive", tail.latencies));
            }
        }
    }

    private void restart() throws Exception {
        Producer<byte[]> producer = producer();
        List<Producer<byte[]>> single = eachPartition(topic);
        byte[] value = task.value();
        for (int sent = 0; sent < task.number("count"); sent++) {
            confirmed(producer.sendAsync(value));
        }
        producer.flush();
        Shared.Round round = Shared.Round.begin();
        Shared.say("{\"event\": \"kill\"}");
        System.in.read();
        single.get(0).send(value);
        Shared.say("{\"event\": \"back\"}");
        round.end();
        // Counters began again with the server, so everything is read.
        Consumer<byte[]> consumer = consumer(topic, "count", true);
        AtomicLong seen = new AtomicLong();
        round.result(1, task.number("count") + 1L, Shared.counted(() -> {
            for (Message<byte[]> one; (one = consumer.receive(1, TimeUnit.SECONDS)) != null; ) {
                seen.incrementAndGet();
            }
            return seen.get();
        }));
    }

    /** A reader of everything that is committed from now on, in a thread of its own. */
    private final class Tail {
        private final Consumer<byte[]> consumer = consumer(topic, "tail", false);
        private volatile Shared.Latencies latencies = new Shared.Latencies();

        Tail() throws Exception {
            Shared.begin(number -> follow(), 0);
        }

        private void follow() throws Exception {
            while (true) {
                Message<byte[]> message = consumer.receive();
                if (message.getValue().length >= Long.BYTES) {
                    long sentNs = ByteBuffer.wrap(message.getValue()).getLong();
                    latencies.add(System.nanoTime() - sentNs);
                }
                confirmed(consumer.acknowledgeAsync(message));
            }
        }

        void reset() {
            latencies = new Shared.Latencies();
        }

        void await(long count) throws InterruptedException {
            long deadlineNs = System.nanoTime() + Shared.ARRIVAL_PATIENCE_NS;
            while (latencies.count() < count && System.nanoTime() < deadlineNs) {
                Thread.sleep(1);
            }
        }
    }

    private static void flush(List<Producer<byte[]>> producers) throws Exception {
        CompletableFuture.allOf(producers.stream()
                        .map(Producer::flushAsync)
                        .toArray(CompletableFuture[]::new))
                .get();
    }

    private static void confirmed(CompletableFuture<?> future) {
        future.whenComplete((done, error) -> {
            if (error != null) {
                Shared.fail(error);
            }
        });
    }
}
