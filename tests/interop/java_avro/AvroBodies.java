import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;
import org.apache.avro.util.RandomData;

/**
 * Lines of standard input: "schema JSON" sets the schema; "random COUNT SEED" answers COUNT lines
 * "HEX JSON" of values of Avro's own generator; "encode JSON" answers one such line; "decode HEX"
 * answers JSON, or "bad".
 */
public class AvroBodies {
    private static Schema schema;
    private static boolean inBlocks;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String rest = line.substring(line.indexOf(' ') + 1);
            if (line.startsWith("schema ")) {
                schema = new Schema.Parser().parse(rest);
            } else if (line.startsWith("random ")) {
                String[] numbers = rest.split(" ");
                int count = Integer.parseInt(numbers[0]);
                for (Object value : new RandomData(schema, count, Long.parseLong(numbers[1]))) {
                    out.println(both(value));
                }
            } else if (line.startsWith("encode ")) {
                out.println(
                    both(
                        new GenericDatumReader<>(schema)
                            .read(null, DecoderFactory.get().jsonDecoder(schema, rest))));
            } else {
                out.println(decoded(HexFormat.of().parseHex(rest)));
            }
        }
        out.flush();
    }

    /** Arrays and maps of every second value are written in blocks with their sizes. */
    private static String both(Object value) throws IOException {
        inBlocks = !inBlocks;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        EncoderFactory factory = new EncoderFactory().configureBlockSize(64);
        BinaryEncoder encoder =
            inBlocks ? factory.blockingBinaryEncoder(out, null) : factory.binaryEncoder(out, null);
        new GenericDatumWriter<>(schema).write(value, encoder);
        encoder.flush();
        return HexFormat.of().formatHex(out.toByteArray()) + " " + json(value);
    }

    private static String json(Object value) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        JsonEncoder encoder = EncoderFactory.get().jsonEncoder(schema, out);
        new GenericDatumWriter<>(schema).write(value, encoder);
        encoder.flush();
        return out.toString(StandardCharsets.UTF_8).replace('\n', ' ');
    }

    private static String decoded(byte[] body) {
        try {
            BinaryDecoder decoder =
                DecoderFactory.get().directBinaryDecoder(new ByteArrayInputStream(body), null);
            Object value = new GenericDatumReader<>(schema).read(null, decoder);
            return decoder.inputStream().read() >= 0 ? "bad" : json(value);
        } catch (IOException | RuntimeException | Error problem) {
            return "bad";
        }
    }
}
