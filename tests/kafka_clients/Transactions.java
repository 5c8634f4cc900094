import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions over two topics; of three, one is aborted. Before each third commit it asks for a kill. */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        String server = arguments[0], id = arguments[1], first = arguments[2], second = arguments[3];
        int count = Integer.parseInt(arguments[4]);
        boolean asks = arguments.length > 5;
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", server, "transactional.id", id, "delivery.timeout.ms", 60000,
            "request.timeout.ms", 20000, "max.block.ms", 60000,
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        for (int number = 0; number < count; ) {
            try {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(first, number + ""));
                producer.send(new ProducerRecord<>(second, number + ""));
                producer.flush();
                if (asks && number % 3 == 1) {
                    System.out.println("kill");
                    System.in.read();
                }
                producer.send(new ProducerRecord<>(first, number + "."));
                if (number % 3 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                number++;
            } catch (ProducerFencedException error) {
                throw error;
            } catch (KafkaException error) {
                System.out.println("again: " + error);
                producer.abortTransaction();
            }
        }
        producer.close();
        System.out.println("done");
    }
}
