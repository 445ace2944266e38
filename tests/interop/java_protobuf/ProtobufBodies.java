import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.util.JsonFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/** Lines of standard input: "encode JSON" answers hex digits, "decode HEX" answers JSON, or "bad". */
public class ProtobufBodies {
    public static void main(String[] args) throws Exception {
        FileDescriptorSet files =
            FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(args[0])));
        Map<String, FileDescriptor> known = new HashMap<>();
        Descriptor message = null;
        for (FileDescriptorProto file : files.getFileList()) {
            FileDescriptor[] needed =
                file.getDependencyList().stream().map(known::get).toArray(FileDescriptor[]::new);
            FileDescriptor built = FileDescriptor.buildFrom(file, needed);
            known.put(file.getName(), built);
            for (Descriptor one : built.getMessageTypes()) {
                if (one.getFullName().equals(args[1])) {
                    message = one;
                }
            }
        }
        JsonFormat.Printer printer =
            JsonFormat.printer().omittingInsignificantWhitespace().preservingProtoFieldNames();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String rest = line.substring(line.indexOf(' ') + 1);
            if (line.startsWith("encode ")) {
                DynamicMessage.Builder builder = DynamicMessage.newBuilder(message);
                JsonFormat.parser().merge(rest, builder);
                out.println(HexFormat.of().formatHex(builder.build().toByteArray()));
            } else {
                byte[] body = HexFormat.of().parseHex(rest);
                try {
                    out.println(printer.print(DynamicMessage.parseFrom(message, body)));
                } catch (InvalidProtocolBufferException | RuntimeException problem) {
                    out.println("bad");
                }
            }
        }
    }
}
