import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.ByteArrayOutputStream;
import java.io.FileReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs a connector with Debezium's embedded engine, and prints each record as Kafka Connect's own converters write it: a line
 * of JSON, {topic, key, offset, wrapped, plain, avroSchema, avro}. It ends when its input does.
 */
public class Recorder {
    static final JsonConverter KEYS = converter(false, true);
    static final JsonConverter WRAPPED = converter(true, false);
    static final JsonConverter PLAIN = converter(false, false);

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileReader(args[0]));
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class)
                .using(properties)
                .using((ok, message, error) -> {
                    if (!ok) {
                        System.err.println("ended: " + message + " " + error);
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying(event -> print(event.value()))
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

    static JsonConverter converter(boolean withSchema, boolean key) {
        JsonConverter made = new JsonConverter();
        made.configure(Map.of("schemas.enable", withSchema, "schemas.cache.size", 1000), key);
        return made;
    }

    static synchronized void print(SourceRecord record) {
        Schema schema = record.valueSchema();
        StringBuilder line = new StringBuilder("{\"topic\":" + text(record.topic()));
        line.append(",\"key\":" + text(json(KEYS, record.topic(), record.keySchema(), record.key())));
        line.append(",\"offset\":" + offset(record));
        line.append(",\"wrapped\":" + text(json(WRAPPED, record.topic(), schema, record.value())));
        line.append(",\"plain\":" + text(json(PLAIN, record.topic(), schema, record.value())));
        if (record.value() != null) {
            // One for each record: its cache takes a schema that has changed for the one it was.
            AvroData converter = new AvroData(1);
            line.append(",\"avroSchema\":" + text(converter.fromConnectSchema(schema).toString()));
            line.append(",\"avro\":" + text(avro(converter, schema, record.value())));
        }
        System.out.println(line.append("}"));
    }

    /** As Kafka Connect keeps it. */
    static String offset(SourceRecord record) {
        try {
            return new ObjectMapper().writeValueAsString(record.sourceOffset());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    static String json(JsonConverter converter, String topic, Schema schema, Object value) {
        byte[] bytes = converter.fromConnectData(topic, schema, value);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static String avro(AvroData converter, Schema schema, Object value) {
        try {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
            new GenericDatumWriter<Object>(converter.fromConnectSchema(schema)).write(converter.fromConnectData(schema, value), encoder);
            encoder.flush();
            return Base64.getEncoder().encodeToString(bytes.toByteArray());
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    static String text(String value) {
        if (value == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : value.toCharArray()) {
            quoted.append(each < 0x20 || each == '"' || each == '\\' || each > 0x7e ? String.format("\\u%04x", (int) each) : each);
        }
        return quoted.append("\"").toString();
    }
}
