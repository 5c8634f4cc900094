import io.opentelemetry.api.OpenTelemetry;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SizeUnit;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What the rows need of Pulsar: tuned clients, topics and their counters. */
abstract class PulsarAccess {
    private static final int MEMORY_MIB = 256;

    final Shared.Task task;
    final String topic;
    final int partitions;
    final PulsarClient client;
    final PulsarAdmin admin;

    PulsarAccess(Shared.Task task) throws Exception {
        this.task = task;
        this.topic = task.text("topic");
        this.partitions = task.number("partitions");
        this.client = connected();
        this.admin = PulsarAdmin.builder().serviceHttpUrl(task.text("admin")).build();
        create(topic);
    }

    /** A client with connections of its own. */
    PulsarClient connected() throws PulsarClientException {
        return PulsarClient.builder()
                .serviceUrl(task.text("address"))
                .enableTransaction(true)
                .openTelemetry(OpenTelemetry.noop())
                .memoryLimit(MEMORY_MIB / task.number("producers", 1), SizeUnit.MEGA_BYTES)
                .startingBackoffInterval(20, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(100, TimeUnit.MILLISECONDS)
                .build();
    }

    Producer<byte[]> producer() throws PulsarClientException {
        return producer(client);
    }

    /** Large batches, to one partition after the other. */
    Producer<byte[]> producer(PulsarClient of) throws PulsarClientException {
        return batched(of, topic).create();
    }

    /** A producer of each partition, whose messages are not kept back. */
    List<Producer<byte[]>> eachPartition(String name) throws PulsarClientException {
        List<Producer<byte[]>> found = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            found.add(client.newProducer()
                    .topic(partitionOf(name, partition))
                    .enableBatching(false)
                    .sendTimeout(0, TimeUnit.SECONDS)
                    .blockIfQueueFull(true)
                    .create());
        }
        return found;
    }

    /** A producer of each partition, with batches. */
    List<Producer<byte[]>> eachPartitionBatched(String name) throws Exception {
        List<CompletableFuture<Producer<byte[]>>> made = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            made.add(batched(client, partitionOf(name, partition)).createAsync());
        }
        List<Producer<byte[]>> found = new ArrayList<>();
        for (CompletableFuture<Producer<byte[]>> one : made) {
            found.add(one.get());
        }
        return found;
    }

    private static ProducerBuilder<byte[]> batched(PulsarClient of, String name) {
        return of.newProducer()
                .topic(name)
                .batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                .batchingMaxMessages(10_000)
                .batchingMaxBytes(262_144)
                .maxPendingMessages(100_000)
                .messageRoutingMode(MessageRoutingMode.RoundRobinPartition)
                .sendTimeout(0, TimeUnit.SECONDS)
                .blockIfQueueFull(true);
    }

    Consumer<byte[]> consumer(String name, String subscription, boolean fromBeginning)
            throws PulsarClientException {
        return consumer(name, subscription, fromBeginning, 10_000);
    }

    Consumer<byte[]> consumer(
            String name, String subscription, boolean fromBeginning, int batchMessagesMax)
            throws PulsarClientException {
        return client.newConsumer()
                .topic(name)
                .subscriptionName(subscription)
                .subscriptionInitialPosition(fromBeginning
                        ? SubscriptionInitialPosition.Earliest
                        : SubscriptionInitialPosition.Latest)
                .receiverQueueSize(20_000)
                .maxTotalReceiverQueueSizeAcrossPartitions(160_000)
                .batchReceivePolicy(BatchReceivePolicy.builder()
                        .maxNumMessages(batchMessagesMax)
                        .maxNumBytes(10 << 20)
                        .timeout(10, TimeUnit.MILLISECONDS)
                        .build())
                .subscribe();
    }

    PulsarTail tail() throws PulsarClientException {
        Consumer<byte[]> consumer = consumer(topic, "tail", false);
        return new PulsarTail(consumer, message -> confirmed(consumer.acknowledgeAsync(message)));
    }

    String partitionOf(String name, int partition) {
        return "persistent://public/default/" + name + "-partition-" + partition;
    }

    /** How many messages the partitions have taken since the server's start, without markers. */
    long stored(String name) throws PulsarAdminException {
        return admin.topics().getPartitionedStats(name, false).getMsgInCounter();
    }

    void create(String name) throws PulsarAdminException {
        try {
            admin.topics().createPartitionedTopic(name, partitions);
        } catch (PulsarAdminException.ConflictException error) {
            // It is there already.
        }
    }

    /** Let an error of a call that nobody waits for end the program. */
    static void confirmed(CompletableFuture<?> future) {
        future.whenComplete((done, error) -> {
            if (error != null) {
                Shared.fail(error);
            }
        });
    }
}
