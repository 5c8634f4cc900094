import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A reader of everything that is committed from now on, in a thread of its own. */
final class KafkaTail extends Shared.Arrivals {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final AtomicBoolean open = new AtomicBoolean(true);
    private final Thread thread;

    KafkaTail(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions) {
        this.consumer = consumer;
        consumer.assign(partitions);
        consumer.seekToEnd(partitions);
        // Where the ends are now, so that nothing is missed that is sent before the first poll.
        partitions.forEach(consumer::position);
        thread = Shared.begin(number -> follow(), 0);
    }

    void close() throws InterruptedException {
        open.set(false);
        thread.join();
    }

    private void follow() {
        while (open.get()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                received(record.value());
            }
        }
        consumer.close();
    }
}
