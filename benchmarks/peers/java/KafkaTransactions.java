import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The rows that have transactions. */
final class KafkaTransactions extends KafkaAccess {
    KafkaTransactions(Shared.Task task) throws Exception {
        super(task);
    }

    void transactions() throws Exception {
        int workers = task.number("at_once");
        byte[] value = task.value();
        create(topic + "-inputs", partitions);
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            producers.add(small(topic + worker));
            producers.get(worker).initTransactions();
        }
        int opened = task.number("open_transactions", 0);
        leaveOpen(opened);
        // How far each worker's own group has read its input.
        long[] read = new long[workers];
        for (Shared.Stretch stretch : task.rounds()) {
            settled();
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            long deadlineNs = System.nanoTime() + stretch.ns();
            Shared.together(workers, worker -> {
                KafkaProducer<byte[], byte[]> producer = producers.get(worker);
                ConsumerGroupMetadata group = memberless(topic + "-group-" + worker);
                TopicPartition input = new TopicPartition(topic + "-inputs", worker % partitions);
                for (int first = worker; System.nanoTime() < deadlineNs; first++) {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(topic, first % partitions, null, value));
                    producer.send(new ProducerRecord<>(topic, (first + 1) % partitions, null, value));
                    producer.sendOffsetsToTransaction(
                            Map.of(input, new OffsetAndMetadata(++read[worker])), group);
                    long calledNs = System.nanoTime();
                    producer.commitTransaction();
                    commits.add(System.nanoTime() - calledNs);
                }
            });
            long finished = commits.count();
            round.end();
            // Each partition of a transaction also got a marker, which takes an offset.
            round.result(finished, 2 * finished,
                    Shared.counted(() -> stored(topic) - before - 2 * finished),
                    Map.of("commit()", commits));
        }
        checkOpen(opened);
    }

    void commits() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", topic));
        producer.initTransactions();
        byte[] value = task.value();
        int chunk = 0;
        for (Shared.Stretch stretch : task.rounds()) {
            settled();
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            long deadlineNs = System.nanoTime() + stretch.ns();
            long sent = 0;
            long markers = 0;
            while (System.nanoTime() < deadlineNs) {
                producer.beginTransaction();
                long commitAtNs = System.nanoTime() + Shared.COMMIT_PERIOD_NS;
                int chunks = 0;
                // Partitions in turn, so that it is known how many get a marker.
                for (; System.nanoTime() < commitAtNs; chunks++, chunk++) {
                    for (int step = 0; step < Shared.CHUNK_MESSAGES; step++) {
                        producer.send(new ProducerRecord<>(topic, chunk % partitions, null, value));
                    }
                }
                sent += (long) chunks * Shared.CHUNK_MESSAGES;
                markers += Math.min(chunks, partitions);
                long calledNs = System.nanoTime();
                producer.commitTransaction();
                commits.add(System.nanoTime() - calledNs);
            }
            round.end();
            long written = markers;
            round.result(sent, sent, Shared.counted(() -> stored(topic) - before - written),
                    Map.of("commit()", commits));
        }
    }

    void hanging() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 0));
        KafkaProducer<byte[], byte[]> hangs = small(topic);
        hangs.initTransactions();
        KafkaTail tail = tail();
        probe(producer, tail, task.nanoseconds("warm_up_seconds"), () -> {});
        for (int number = 0; number < 2 * task.number("rounds"); number++) {
            boolean withOpen = number % 2 == 1;
            settled();
            long before = stored(topic);
            if (withOpen) {
                hangs.beginTransaction();
                for (int partition = 0; partition < partitions; partition++) {
                    hangs.send(new ProducerRecord<>(topic, partition, null, new byte[0])).get();
                }
            }
            Shared.Round round = Shared.Round.begin(true);
            Shared.Latencies sends = probe(producer, tail, task.nanoseconds("seconds"), () -> {
                if (withOpen) {
                    hangs.abortTransaction();
                }
            });
            round.end();
            // What it wrote to each partition, and its marker there.
            int others = withOpen ? 2 * partitions : 0;
            Map<String, Shared.Latencies> latencies = new LinkedHashMap<>();
            latencies.put("send", sends);
            latencies.put("send to receive", tail.latencies());
            round.result(withOpen ? "one transaction hangs" : "none hangs",
                    sends.count(), sends.count(),
                    Shared.counted(() -> stored(topic) - before - others), latencies);
        }
        tail.close();
    }

    /** Send single messages, each confirmed, then wait until the reader has all of them. */
    private Shared.Latencies probe(
            KafkaProducer<byte[], byte[]> producer, KafkaTail tail, long durationNs, Runnable after)
            throws Exception {
        Shared.Latencies sends = new Shared.Latencies();
        tail.reset();
        long deadlineNs = System.nanoTime() + durationNs;
        while (System.nanoTime() < deadlineNs) {
            byte[] value = Shared.stamped(Long.BYTES);
            long calledNs = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, sends.count() % partitions, null, value)).get();
            sends.add(System.nanoTime() - calledNs);
            Thread.sleep(Shared.PROBE_PERIOD_MS);
        }
        after.run();
        tail.await(sends.count());
        return sends;
    }

    void transform() throws Exception {
        long expected = task.number("count");
        String outputs = topic + "-outputs";
        create(outputs, partitions);
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", topic));
        producer.initTransactions();
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(
                "group.id", topic, "max.poll.records", Shared.CHUNK_MESSAGES));
        consumer.subscribe(List.of(topic));
        while (consumer.assignment().isEmpty()) {
            // Joining is no part of the work; what came along is read again.
            consumer.poll(Duration.ofMillis(10));
        }
        for (boolean measured : task.readings()) {
            consumer.seekToBeginning(consumer.assignment());
            settled(outputs);
            long before = stored(outputs);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = Shared.Round.begin(measured);
            long seen = 0;
            long markers = 0;
            while (seen < expected) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(
                            new ProducerRecord<>(outputs, record.partition(), null, record.value()));
                    offsets.put(new TopicPartition(topic, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                long calledNs = System.nanoTime();
                producer.commitTransaction();
                commits.add(System.nanoTime() - calledNs);
                seen += records.count();
                markers += offsets.size();
            }
            round.end();
            long written = markers;
            round.result(seen, expected, Shared.counted(() -> stored(outputs) - before - written),
                    Map.of("commit()", commits));
        }
    }

    /** A producer of single messages in transactions that may stay open for long. */
    private KafkaProducer<byte[], byte[]> small(String transactionalId) {
        return producer(Map.of(
                "linger.ms", 0,
                "transactional.id", transactionalId,
                "transaction.timeout.ms", Shared.OPEN_TIMEOUT_MS,
                "buffer.memory", 4_194_304L));
    }

    /** Begin transactions that have written a message each, and let go of their producers. */
    private void leaveOpen(int count) throws InterruptedException {
        AtomicInteger next = new AtomicInteger();
        Shared.together(Math.min(count, Shared.OPENED_AT_ONCE), worker -> {
            for (int number; (number = next.getAndIncrement()) < count; ) {
                KafkaProducer<byte[], byte[]> producer = small(topic + "-open-" + number);
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, number % partitions, null, task.value()))
                        .get();
                // With any patience it would abort the transaction.
                producer.close(Duration.ZERO);
            }
        });
    }

    /** Fail unless exactly these transactions are open still. */
    private void checkOpen(int expected) throws Exception {
        ListTransactionsOptions ongoing = new ListTransactionsOptions()
                .filterStates(List.of(TransactionState.ONGOING));
        Shared.checkOpen(expected, admin.listTransactions(ongoing).all().get().size());
    }

    /** A group without members: nothing is checked but that nobody else commits for it. */
    @SuppressWarnings("removal")
    private static ConsumerGroupMetadata memberless(String name) {
        return new ConsumerGroupMetadata(name);
    }
}
