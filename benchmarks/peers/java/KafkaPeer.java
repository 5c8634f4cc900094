import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The rows of the comparison for Kafka, with its Java client. */
final class KafkaPeer extends KafkaAccess {
    private KafkaPeer(Shared.Task task) throws Exception {
        super(task);
    }

    public static void main(String[] arguments) throws Exception {
        Shared.Task task = new Shared.Task(arguments);
        KafkaPeer peer = new KafkaPeer(task);
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
        KafkaProducer<byte[], byte[]> producer = producer(Map.of());
        Shared.Round round = Shared.Round.begin();
        int count = task.number("count");
        send(producer, count);
        round.end();
        round.result(count, count, Shared.counted(() -> stored(topic)));
    }

    private void transactions() throws Exception {
        int workers = task.number("at_once");
        byte[] value = task.value();
        create(topic + "-inputs", partitions);
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            producers.add(producer(Map.of(
                    "linger.ms", 0, "transactional.id", topic + worker, "buffer.memory", 4_194_304L)));
            producers.get(worker).initTransactions();
        }
        // How far each worker's own group has read its input.
        long[] read = new long[workers];
        for (int number = 0; number <= task.number("rounds"); number++) {
            long durationNs = task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds");
            settled();
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long deadlineNs = System.nanoTime() + durationNs;
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
            if (round == null) {
                continue;
            }
            round.end();
            // Each partition of a transaction also got a marker, which takes an offset.
            round.result("", finished, 2 * finished,
                    Shared.counted(() -> stored(topic) - before - 2 * finished),
                    Shared.named("commit()", commits));
        }
    }

    private void produce() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of());
        for (int number = 0; number <= task.number("rounds"); number++) {
            settled();
            long before = stored(topic);
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long sent = send(producer, task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds"));
            if (round != null) {
                round.end();
                round.result(sent, sent, Shared.counted(() -> stored(topic) - before));
            }
        }
    }

    private void consume() throws Exception {
        long expected = task.number("count");
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", topic + "-java"));
        consumer.assign(all());
        for (int number = 0; number <= task.number("rounds"); number++) {
            consumer.seekToBeginning(all());
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long seen = 0;
            while (seen < expected) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    seen += record.value().length > 0 ? 1 : 0;
                }
                consumer.commitAsync();
            }
            consumer.commitSync();
            if (round != null) {
                round.end();
                long found = seen;
                round.result(found, stored(topic), () -> found);
            }
        }
    }

    private void transactional() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", topic));
        producer.initTransactions();
        byte[] value = task.value();
        int chunk = 0;
        for (int number = 0; number <= task.number("rounds"); number++) {
            long durationNs = task.nanoseconds(number == 0 ? "warm_up_seconds" : "seconds");
            settled();
            long before = stored(topic);
            Shared.Latencies commits = new Shared.Latencies();
            Shared.Round round = number == 0 ? null : Shared.Round.begin();
            long deadlineNs = System.nanoTime() + durationNs;
            long sent = 0;
            long markers = 0;
            while (System.nanoTime() < deadlineNs) {
                producer.beginTransaction();
                long commitAtNs = System.nanoTime() + Shared.COMMIT_PERIOD_NS;
                int chunks = 0;
                while (System.nanoTime() < commitAtNs) {
                    for (int step = 0; step < Shared.CHUNK_MESSAGES; step++) {
                        producer.send(new ProducerRecord<>(topic, chunk % partitions, null, value));
                    }
                    chunk++;
                    chunks++;
                }
                sent += (long) chunks * Shared.CHUNK_MESSAGES;
                markers += Math.min(chunks, partitions);
                long calledNs = System.nanoTime();
                producer.commitTransaction();
                commits.add(System.nanoTime() - calledNs);
            }
            if (round != null) {
                round.end();
                long markersWritten = markers;
                round.result("", sent, sent,
                        Shared.counted(() -> stored(topic) - before - markersWritten),
                        Shared.named("commit()", commits));
            }
        }
    }

    private void hanging() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 0));
        KafkaProducer<byte[], byte[]> hangs =
                producer(Map.of("transactional.id", topic, "transaction.timeout.ms", 600_000));
        hangs.initTransactions();
        Tail tail = new Tail();
        probe(producer, tail, task.nanoseconds("warm_up_seconds"), null);
        for (boolean withOpen : new boolean[] {false, true}) {
            long before = stored(topic);
            long extra = 0;
            if (withOpen) {
                hangs.beginTransaction();
                for (int partition = 0; partition < partitions; partition++) {
                    hangs.send(new ProducerRecord<>(topic, partition, null, new byte[0])).get();
                }
                extra = 2L * partitions;
            }
            Map<String, Shared.Latencies> latencies = new LinkedHashMap<>();
            Shared.Round round = Shared.Round.begin();
            long sent = probe(producer, tail, task.nanoseconds("seconds"), () -> {
                if (withOpen) {
                    hangs.abortTransaction();
                }
            }, latencies);
            round.end();
            long others = extra;
            round.result(withOpen ? "one transaction hangs" : "none hangs", sent, sent,
                    Shared.counted(() -> stored(topic) - before - others), latencies);
        }
        tail.close();
    }

    private void probe(
            KafkaProducer<byte[], byte[]> producer, Tail tail, long durationNs, Runnable after)
            throws Exception {
        probe(producer, tail, durationNs, after, new HashMap<>());
    }

    /** Send single messages, each confirmed, and wait until the reader has all of them. */
    private long probe(
            KafkaProducer<byte[], byte[]> producer, Tail tail, long durationNs, Runnable after,
            Map<String, Shared.Latencies> latencies) throws Exception {
        Shared.Latencies sends = new Shared.Latencies();
        tail.reset();
        latencies.put("send", sends);
        latencies.put("send to receive", tail.latencies);
        long deadlineNs = System.nanoTime() + durationNs;
        long sent = 0;
        for (; System.nanoTime() < deadlineNs; sent++) {
            long calledNs = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, (int) (sent % partitions), null, stamped())).get();
            sends.add(System.nanoTime() - calledNs);
            Thread.sleep(Shared.PROBE_PERIOD_MS);
        }
        if (after != null) {
            after.run();
        }
        tail.await(sent);
        return sent;
    }

    private void transform() throws Exception {
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
        consumer.seekToBeginning(consumer.assignment());
        Shared.Latencies commits = new Shared.Latencies();
        Shared.Round round = Shared.Round.begin();
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
                producer.send(new ProducerRecord<>(outputs, record.partition(), null, record.value()));
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
        round.result("", seen, expected, Shared.counted(() -> stored(outputs) - written),
                Shared.named("commit()", commits));
    }

    private void tailing() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 1));
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
                int partition = (int) (next.getAndIncrement() % partitions);
                producer.send(new ProducerRecord<>(topic, partition, null, own), KafkaAccess::confirm);
            });
            tail.await(sent);
            if (round != null) {
                round.end();
                round.result("", sent, sent, Shared.counted(() -> stored(topic) - before),
                        Shared.named("send to receive", tail.latencies));
            }
        }
        tail.close();
    }

    private void restart() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 0));
        send(producer, task.number("count"));
        Shared.Round round = Shared.Round.begin();
        Shared.say("{\"event\": \"kill\"}");
        System.in.read();
        producer.send(new ProducerRecord<>(topic, 0, null, task.value())).get();
        Shared.say("{\"event\": \"back\"}");
        round.end();
        long expected = task.number("count") + 1L;
        round.result(1, expected, Shared.counted(() -> stored(topic)));
    }

    /** A reader of everything that is committed from now on, in a thread of its own. */
    private final class Tail {
        private final KafkaConsumer<byte[], byte[]> consumer =
                consumer(Map.of("group.id", topic + "-tail", "fetch.max.wait.ms", 500));
        private final AtomicBoolean open = new AtomicBoolean(true);
        private final Thread thread;
        private volatile Shared.Latencies latencies = new Shared.Latencies();

        Tail() {
            consumer.assign(all());
            consumer.seekToEnd(all());
            all().forEach(consumer::position);
            thread = Shared.begin(number -> follow(), 0);
        }

        private void follow() {
            while (open.get()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if (record.value().length >= Long.BYTES) {
                        latencies.add(System.nanoTime() - ByteBuffer.wrap(record.value()).getLong());
                    }
                }
            }
            consumer.close();
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

        void close() throws InterruptedException {
            open.set(false);
            thread.join();
        }
    }
}
