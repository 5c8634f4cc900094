import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Messages;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.naming.TopicName;

/** The rows that have transactions. */
final class PulsarTransactions extends PulsarAccess {
    private static final int INPUTS_PER_S_MAX = 5_000;

    PulsarTransactions(Shared.Task task) throws Exception {
        super(task);
    }

    void transactions() throws Exception {
        int workers = task.number("at_once");
        byte[] value = task.value();
        String inputs = topic + "-inputs";
        create(inputs);
        List<Producer<byte[]>> producers = eachPartition(topic);
        List<Producer<byte[]>> inputProducers = eachPartition(inputs);
        Consumer<byte[]> consumer = consumer(inputs, "inputs", true);
        ConcurrentLinkedQueue<MessageId> received = new ConcurrentLinkedQueue<>();
        int opened = task.number("open_transactions", 0);
        leaveOpen(producers, opened);
        for (Shared.Stretch stretch : task.rounds()) {
            long needed = workers + (long) INPUTS_PER_S_MAX * stretch.ns() / 1_000_000_000L;
            receive(inputProducers, consumer, received, needed - received.size());
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            long deadlineNs = System.nanoTime() + stretch.ns();
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
            round.end();
            round.result(finished, 2 * finished, Shared.counted(() -> stored(topic) - before),
                    Map.of("commit()", commits));
        }
        checkOpen(opened);
    }

    /** The next transaction begins while the last one commits. */
    void commits() throws Exception {
        Producer<byte[]> producer = producer();
        byte[] value = task.value();
        for (Shared.Stretch stretch : task.rounds()) {
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            long deadlineNs = System.nanoTime() + stretch.ns();
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
            round.end();
            round.result(sent, sent, Shared.counted(() -> stored(topic) - before),
                    Map.of("commit()", commits));
        }
    }

    void hanging() throws Exception {
        List<Producer<byte[]>> producers = eachPartition(topic);
        PulsarTail tail = tail();
        probe(producers, tail, task.nanoseconds("warm_up_seconds"), null);
        for (int number = 0; number < 2 * task.number("rounds"); number++) {
            boolean withOpen = number % 2 == 1;
            Transaction hangs = null;
            long before = stored(topic);
            if (withOpen) {
                hangs = transaction();
                for (Producer<byte[]> producer : producers) {
                    producer.newMessage(hangs).value(new byte[1]).sendAsync().get();
                }
            }
            Shared.Round round = Shared.Round.begin(true);
            Shared.Latencies sends = probe(producers, tail, task.nanoseconds("seconds"), hangs);
            round.end();
            // What it wrote to each partition.
            int others = withOpen ? partitions : 0;
            Map<String, Shared.Latencies> latencies = new LinkedHashMap<>();
            latencies.put("send", sends);
            latencies.put("send to receive", tail.latencies());
            round.result(withOpen ? "one transaction hangs" : "none hangs",
                    sends.count(), sends.count(),
                    Shared.counted(() -> stored(topic) - before - others), latencies);
        }
    }

    /** Send single messages, each confirmed, abort what hangs, and wait for the reader. */
    private Shared.Latencies probe(
            List<Producer<byte[]>> producers, PulsarTail tail, long durationNs, Transaction hangs)
            throws Exception {
        Shared.Latencies sends = new Shared.Latencies();
        tail.reset();
        long deadlineNs = System.nanoTime() + durationNs;
        while (System.nanoTime() < deadlineNs) {
            byte[] value = Shared.stamped(Long.BYTES);
            long calledNs = System.nanoTime();
            producers.get(sends.count() % partitions).send(value);
            sends.add(System.nanoTime() - calledNs);
            Thread.sleep(Shared.PROBE_PERIOD_MS);
        }
        if (hangs != null) {
            hangs.abort().get();
        }
        tail.await(sends.count());
        return sends;
    }

    /** A subscription of its own in each round. */
    void transform() throws Exception {
        long expected = task.number("count");
        String outputs = topic + "-outputs";
        create(outputs);
        List<Producer<byte[]>> producers = eachPartitionBatched(outputs);
        int number = 0;
        for (boolean measured : task.readings()) {
            Consumer<byte[]> consumer =
                    consumer(topic, "transform-" + number++, true, Shared.CHUNK_MESSAGES);
            long before = stored(outputs);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = Shared.Round.begin(measured);
            long seen = 0;
            while (seen < expected) {
                Messages<byte[]> messages = consumer.batchReceive();
                if (messages.size() == 0) {
                    continue;
                }
                Transaction txn = transaction();
                for (Message<byte[]> message : messages) {
                    int partition = TopicName.getPartitionIndex(message.getTopicName());
                    confirmed(producers.get(partition)
                            .newMessage(txn).value(message.getValue()).sendAsync());
                }
                confirmed(consumer.acknowledgeAsync(messages, txn));
                long calledNs = System.nanoTime();
                txn.commit().get();
                commits.add(System.nanoTime() - calledNs);
                seen += messages.size();
            }
            round.end();
            round.result(seen, expected, Shared.counted(() -> stored(outputs) - before),
                    Map.of("commit()", commits));
            consumer.close();
        }
    }

    private Transaction transaction() throws Exception {
        return client.newTransaction()
                .withTransactionTimeout(Shared.OPEN_TIMEOUT_MS, TimeUnit.MILLISECONDS)
                .build()
                .get();
    }

    /** Send so many inputs, and receive them. */
    private void receive(
            List<Producer<byte[]>> producers, Consumer<byte[]> consumer,
            ConcurrentLinkedQueue<MessageId> received, long missing) throws Exception {
        byte[] value = task.value();
        for (int number = 0; number < missing; number++) {
            confirmed(producers.get(number % partitions).sendAsync(value));
        }
        for (long left = missing; left > 0; ) {
            Messages<byte[]> some = consumer.batchReceive();
            some.forEach(message -> received.add(message.getMessageId()));
            left -= some.size();
        }
    }

    /** Begin transactions that have written a message each. */
    private void leaveOpen(List<Producer<byte[]>> producers, int count) throws Exception {
        AtomicInteger next = new AtomicInteger();
        Shared.together(Math.min(count, Shared.OPENED_AT_ONCE), worker -> {
            for (int number; (number = next.getAndIncrement()) < count; ) {
                Transaction txn = transaction();
                producers.get(number % partitions)
                        .newMessage(txn).value(task.value()).sendAsync().get();
            }
        });
    }

    /** Fail unless exactly these transactions are open still. */
    private void checkOpen(int expected) throws Exception {
        Shared.checkOpen(expected, admin.transactions().getCoordinatorStats().values().stream()
                .mapToLong(one -> one.getOngoingTxnSize())
                .sum());
    }
}
