import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Messages;
import org.apache.pulsar.client.api.Producer;

/** The rows that have no transactions. */
final class PulsarMessages extends PulsarAccess {
    PulsarMessages(Shared.Task task) throws Exception {
        super(task);
    }

    void fill() throws Exception {
        int count = task.number("count");
        Producer<byte[]> producer = producer();
        Shared.Round round = Shared.Round.begin(true);
        send(producer, count);
        round.end();
        round.result(count, count, Shared.counted(() -> stored(topic)));
    }

    /** Each producer has a thread and a connection of its own. */
    void produce() throws Exception {
        boolean inTurn = task.number("in_turn", 0) == 1;
        List<List<Producer<byte[]>>> producers = new ArrayList<>();
        for (int number = 0; number < task.number("producers", 1); number++) {
            producers.add(inTurn ? eachPartitionBatched(topic) : List.of(producer(connected())));
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

    /** A subscription of its own in each round. */
    void consume() throws Exception {
        long expected = task.number("count");
        boolean many = task.text("call").equals("batch call");
        int number = 0;
        for (boolean measured : task.readings()) {
            String subscription = "round-" + number++ + (many ? "-many" : "-each");
            Consumer<byte[]> consumer = consumer(topic, subscription, true);
            Shared.Round round = Shared.Round.begin(measured);
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
            round.end();
            long found = seen;
            round.result(found, stored(topic), () -> found);
        }
    }

    void tailing() throws Exception {
        List<Producer<byte[]>> producers = eachPartitionBatched(topic);
        int size = task.number("message_bytes");
        PulsarTail tail = tail();
        for (Shared.Stretch stretch : task.rounds()) {
            long before = stored(topic);
            tail.reset();
            AtomicLong next = new AtomicLong();
            Shared.Round round = Shared.Round.begin(stretch.measured());
            long sent = Shared.paced(task.number("rate"), stretch.ns(), () ->
                    confirmed(producers.get((int) (next.getAndIncrement() % partitions))
                            .sendAsync(Shared.stamped(size))));
            tail.await(sent);
            round.end();
            round.result(sent, sent, Shared.counted(() -> stored(topic) - before),
                    Map.of("send to receive", tail.latencies()));
        }
    }

    void restart() throws Exception {
        Producer<byte[]> producer = producer();
        Producer<byte[]> single = eachPartition(topic).get(0);
        int count = task.number("count");
        send(producer, count);
        // It would tell of each look at the topic that fails until the server is back.
        producer.close();
        Shared.Round round = Shared.Round.begin(true);
        Shared.say("{\"event\": \"kill\"}");
        System.in.read();
        single.send(task.value());
        Shared.say("{\"event\": \"back\"}");
        round.end();
        // Counters began again with the server, so everything is read.
        Consumer<byte[]> consumer = consumer(topic, "count", true);
        AtomicLong seen = new AtomicLong();
        round.result(1, count + 1L, Shared.counted(() -> {
            while (consumer.receive(1, TimeUnit.SECONDS) != null) {
                seen.incrementAndGet();
            }
            return seen.get();
        }));
    }

    private void send(Producer<byte[]> producer, int count) throws Exception {
        byte[] value = task.value();
        for (int sent = 0; sent < count; sent++) {
            confirmed(producer.sendAsync(value));
        }
        producer.flush();
    }

    /** Send for a time, by one producer after the other; return how many were sent and confirmed. */
    private long send(List<Producer<byte[]>> producers, long durationNs) throws Exception {
        byte[] value = task.value();
        long deadlineNs = System.nanoTime() + durationNs;
        long sent = 0;
        while (System.nanoTime() < deadlineNs) {
            for (int step = 0; step < Shared.CHUNK_MESSAGES; step++) {
                confirmed(producers.get((int) (sent++ % producers.size())).sendAsync(value));
            }
        }
        CompletableFuture.allOf(producers.stream()
                        .map(Producer::flushAsync)
                        .toArray(CompletableFuture[]::new))
                .get();
        return sent;
    }
}
