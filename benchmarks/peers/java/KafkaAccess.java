import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What the rows need of Kafka: tuned clients, topics and their offsets. */
abstract class KafkaAccess {
    private static final int BATCH_BYTES = 262_144;
    private static final int BUFFER_BYTES = 134_217_728;

    final Shared.Task task;
    final String topic;
    final int partitions;
    final Admin admin;

    KafkaAccess(Shared.Task task) throws Exception {
        this.task = task;
        this.topic = task.text("topic");
        this.partitions = task.number("partitions");
        this.admin = Admin.create(Map.of("bootstrap.servers", task.text("address")));
        create(topic, partitions);
    }

    static void confirm(Object metadata, Exception error) {
        if (error != null) {
            Shared.fail(error);
        }
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> others) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", task.text("address"));
        settings.put("acks", "all");
        // Two batches of each partition fit into the buffer.
        int bufferBytes = BUFFER_BYTES / task.number("producers", 1);
        settings.put("batch.size", Math.min(BATCH_BYTES, bufferBytes / 2 / partitions));
        settings.put("linger.ms", 5);
        settings.put("buffer.memory", (long) bufferBytes);
        settings.put("retry.backoff.ms", 5);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 20);
        settings.putAll(others);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> others) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", task.text("address"));
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", 10_000);
        settings.put("retry.backoff.ms", 5);
        settings.putAll(others);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    KafkaTail tail() {
        return new KafkaTail(consumer(Map.of("group.id", topic + "-tail")), all());
    }

    List<TopicPartition> all() {
        return all(topic);
    }

    List<TopicPartition> all(String name) {
        return IntStream.range(0, partitions).mapToObj(one -> new TopicPartition(name, one)).toList();
    }

    /** The sum of the end offsets, which counts markers and what is not committed, too. */
    long stored(String name) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        all(name).forEach(one -> asked.put(one, OffsetSpec.latest()));
        return admin.listOffsets(asked).all().get().values().stream()
                .mapToLong(one -> one.offset()).sum();
    }

    void settled() throws Exception {
        settled(topic);
    }

    /** Wait until no offset grows any more: markers of the last round may be on their way. */
    void settled(String name) throws Exception {
        long last = -1;
        for (long found = stored(name); found != last; found = stored(name)) {
            last = found;
            Thread.sleep(100);
        }
    }

    void create(String name, int count) throws Exception {
        try {
            // As many copies as the server makes by default.
            NewTopic topic = new NewTopic(name, Optional.of(count), Optional.empty());
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) {
                throw error;
            }
        }
    }
}
