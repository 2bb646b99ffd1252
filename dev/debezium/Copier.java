import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs a connector with Debezium's embedded engine, and copies its changes as JSON into one topic of Kafka, at least once: a batch is
 * acknowledged before its offset counts. Arguments: the connector's properties, bootstrap servers, the topic. It ends when its input does.
 */
public class Copier {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileReader(args[0]));
        Properties client = new Properties();
        client.put("bootstrap.servers", args[1]);
        client.put("acks", "all");
        client.put("compression.type", "lz4");
        client.put("linger.ms", "5");
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(client, new ByteArraySerializer(), new ByteArraySerializer());
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((ok, message, error) -> {
                    if (!ok) {
                        System.err.println("ended: " + message + " " + error);
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> each : records) {
                        producer.send(new ProducerRecord<>(args[2], bytes(each.key()), bytes(each.value())));
                    }
                    producer.flush();
                    for (ChangeEvent<String, String> each : records) {
                        committer.markProcessed(each);
                    }
                    committer.markBatchFinished();
                })
                .build();
        Thread thread = new Thread(engine);
        thread.start();
        while (System.in.read() >= 0) {
            continue;
        }
        engine.close();
        thread.join();
        System.exit(0);
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
