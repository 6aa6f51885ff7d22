// SPDX-License-Identifier: Apache-2.0
// Prints committed verdicts as JSON lines, in either form of the wire format, and continues after the last one that it has printed.
//
//   java -cp CLASSPATH Verdicts.java SETTINGS GROUP SCHEMAS [--para N] [--count N] [--topic T] [--registry URL]
//
// SETTINGS are properties of Kafka's Java client, SCHEMAS is a folder of .avsc files with every version that may occur.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Verdicts {
    static final ObjectMapper JSON = new ObjectMapper();
    static final short MARKER = (short) 0xc301;
    static final byte CONFLUENT = 0;

    /** Finds the schema that a value was written with, and leaves the value's position behind its header. */
    static final class Schemas {
        final Map<Long, Schema> byFingerprint = new HashMap<>();
        final Map<Integer, Schema> byId = new HashMap<>();
        final HttpClient client = HttpClient.newHttpClient();
        final String registry;

        Schemas(Path folder, String registry) throws IOException {
            this.registry = registry;
            try (var files = Files.newDirectoryStream(folder, "*.avsc")) {
                for (Path file : files) {
                    Schema schema = new Schema.Parser().parse(file.toFile());
                    byFingerprint.put(SchemaNormalization.parsingFingerprint64(schema), schema);
                }
            }
        }

        Schema of(ByteBuffer value) throws Exception {
            if (value.remaining() >= 10 && value.getShort(0) == MARKER) {
                long fingerprint = value.order(ByteOrder.LITTLE_ENDIAN).getLong(2);
                value.position(10);
                Schema schema = byFingerprint.get(fingerprint);
                if (schema == null) throw new IOException("no .avsc file has the fingerprint " + Long.toHexString(fingerprint));
                return schema;
            }
            if (value.remaining() >= 5 && value.get(0) == CONFLUENT) {
                int id = value.getInt(1); // big-endian, as Java reads by default
                value.position(5);
                Schema schema = byId.get(id);
                if (schema == null) byId.put(id, schema = ask(id));
                return schema;
            }
            throw new IOException("expected c301 or 00, found a value of " + value.remaining() + " bytes");
        }

        private Schema ask(int id) throws Exception {
            if (registry == null) throw new IOException("schema id " + id + ": --registry is missing");
            var uri = URI.create(registry + "/schemas/ids/" + Integer.toUnsignedString(id));
            var request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(10)).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) throw new IOException(uri + ": " + answer.body());
            return new Schema.Parser().parse(JSON.readTree(answer.body()).get("schema").asText());
        }
    }

    static ObjectNode shown(GenericRecord verdict) {
        ObjectNode node = JSON.createObjectNode();
        node.put("lane", verdict.get("lane").toString());
        node.put("block", (Long) verdict.get("block"));
        node.put("kind", verdict.get("kind").toString());
        node.put("index", (Long) verdict.get("index"));
        node.put("para_id", (Long) verdict.get("para_id"));
        node.put("outcome", verdict.get("outcome").toString());
        var error = (GenericRecord) verdict.get("error");
        node.put("error", error == null ? null : error.get("kind").toString());
        node.put("id", "0x" + HexFormat.of().formatHex(((GenericFixed) verdict.get("id")).bytes()));
        return node;
    }

    public static void main(String[] arguments) throws Exception {
        String topic = "validator.verdicts";
        String registry = null;
        long para = -1;
        long left = Long.MAX_VALUE;
        for (int at = 3; at < arguments.length; at += 2) {
            switch (arguments[at]) {
                case "--topic" -> topic = arguments[at + 1];
                case "--registry" -> registry = arguments[at + 1];
                case "--para" -> para = Long.parseLong(arguments[at + 1]);
                case "--count" -> left = Long.parseLong(arguments[at + 1]);
                default -> throw new IllegalArgumentException(arguments[at]);
            }
        }
        var config = new Properties();
        try (var settings = Files.newBufferedReader(Path.of(arguments[0]))) {
            config.load(settings);
        }
        config.put("group.id", arguments[1]);
        // Without it, verdicts of batches that are never committed are read, too, and again when they are written again.
        config.put("isolation.level", "read_committed");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("allow.auto.create.topics", "false");
        var schemas = new Schemas(Path.of(arguments[2]), registry);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            // A subscription to a topic that does not exist waits for it without a word.
            var partitions = consumer.partitionsFor(topic);
            if (partitions == null || partitions.isEmpty()) throw new IOException("topic " + topic + " does not exist");
            consumer.subscribe(List.of(topic));
            boolean isRead = true;
            while (left > 0 && isRead) {
                var taken = new HashMap<TopicPartition, OffsetAndMetadata>();
                try {
                    for (var record : consumer.poll(Duration.ofSeconds(1))) {
                        var value = ByteBuffer.wrap(record.value());
                        Schema schema = schemas.of(value);
                        var decoder = DecoderFactory.get().binaryDecoder(value.array(), value.position(), value.remaining(), null);
                        GenericRecord verdict = new GenericDatumReader<GenericRecord>(schema).read(null, decoder);
                        if (para < 0 || (Long) verdict.get("para_id") == para) {
                            System.out.println(JSON.writeValueAsString(shown(verdict)));
                            isRead = !System.out.checkError();
                            if (!isRead) break; // nobody reads the output any more: this verdict is not taken
                            left--;
                        }
                        var place = new TopicPartition(record.topic(), record.partition());
                        taken.put(place, new OffsetAndMetadata(record.offset() + 1));
                        if (left == 0) break; // what was polled beyond it is not taken
                    }
                } finally {
                    // After the output: a program that ends before this prints these verdicts again, and loses none.
                    // Each partition by itself, for a poll brings records of several.
                    consumer.commitSync(taken);
                }
            }
        }
    }
}
