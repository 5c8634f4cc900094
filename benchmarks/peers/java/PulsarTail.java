import java.util.function.Consumer;
import org.apache.pulsar.client.api.Message;

/** A reader of everything that is committed from now on, in a thread of its own. */
final class PulsarTail extends Shared.Arrivals {
    PulsarTail(
            org.apache.pulsar.client.api.Consumer<byte[]> consumer,
            Consumer<Message<byte[]>> acknowledge) {
        Shared.begin(number -> {
            while (true) {
                Message<byte[]> message = consumer.receive();
                received(message.getValue());
                acknowledge.accept(message);
            }
        }, 0);
    }
}
