import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The rows that have no transactions. */
final class KafkaMessages extends KafkaAccess {
    KafkaMessages(Shared.Task task) throws Exception {
        super(task);
    }

    void fill() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of());
        Shared.Round round = Shared.Round.begin(true);
        int count = task.number("count");
        send(producer, count);
        round.end();
        round.result(count, count, Shared.counted(() -> stored(topic)));
    }

    /** Each producer has a thread and a connection of its own. */
    void produce() throws Exception {
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int number = 0; number < task.number("producers", 1); number++) {
            producers.add(producer(Map.of()));
        }
        for (Shared.Stretch stretch : task.rounds()) {
            long before = stored(topic);
            AtomicLong sent = new AtomicLong();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            Shared.together(producers.size(),
                    number -> sent.addAndGet(send(producers.get(number), stretch.ns())));
            round.end();
            round.result(sent.get(), sent.get(), Shared.counted(() -> stored(topic) - before));
        }
    }

    void consume() throws Exception {
        long expected = task.number("count");
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", topic + "-java"));
        consumer.assign(all());
        for (boolean measured : task.readings()) {
            consumer.seekToBeginning(all());
            Shared.Round round = Shared.Round.begin(measured);
            long seen = 0;
            while (seen < expected) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    seen += record.value().length > 0 ? 1 : 0;
                }
                consumer.commitAsync();
            }
            consumer.commitSync();
            round.end();
            long found = seen;
            round.result(found, stored(topic), () -> found);
        }
    }

    void tailing() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 1));
        int size = task.number("message_bytes");
        KafkaTail tail = tail();
        for (Shared.Stretch stretch : task.rounds()) {
            long before = stored(topic);
            tail.reset();
            AtomicLong next = new AtomicLong();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            long sent = Shared.paced(task.number("rate"), stretch.ns(), () -> {
                int partition = (int) (next.getAndIncrement() % partitions);
                producer.send(
                        new ProducerRecord<>(topic, partition, null, Shared.stamped(size)),
                        KafkaAccess::confirm);
            });
            tail.await(sent);
            round.end();
            round.result(sent, sent, Shared.counted(() -> stored(topic) - before),
                    Map.of("send to receive", tail.latencies()));
        }
        tail.close();
    }

    void restart() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("linger.ms", 0));
        send(producer, task.number("count"));
        Shared.Round round = Shared.Round.begin(true);
        Shared.say("{\"event\": \"kill\"}");
        System.in.read();
        producer.send(new ProducerRecord<>(topic, 0, null, task.value())).get();
        Shared.say("{\"event\": \"back\"}");
        round.end();
        long expected = task.number("count") + 1L;
        round.result(1, expected, Shared.counted(() -> stored(topic)));
    }

    /** Send for a time; return how many were sent and confirmed. */
    private long send(KafkaProducer<byte[], byte[]> producer, long durationNs) {
        long deadlineNs = System.nanoTime() + durationNs;
        long sent = 0;
        for (; System.nanoTime() < deadlineNs; sent += Shared.CHUNK_MESSAGES) {
            sendChunk(producer, sent, Shared.CHUNK_MESSAGES);
        }
        producer.flush();
        return sent;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int count) {
        for (int sent = 0; sent < count; sent += Shared.CHUNK_MESSAGES) {
            sendChunk(producer, sent, Math.min(Shared.CHUNK_MESSAGES, count - sent));
        }
        producer.flush();
    }

    private void sendChunk(KafkaProducer<byte[], byte[]> producer, long sent, int count) {
        byte[] value = task.value();
        boolean inTurn = task.number("in_turn", 0) == 1;
        for (int step = 0; step < count; step++) {
            Integer partition = inTurn ? (int) ((sent + step) % partitions) : null;
            producer.send(new ProducerRecord<>(topic, partition, null, value), KafkaAccess::confirm);
        }
    }
}
