import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;

/** One form-encoded line: fields by name, a field may occur several times. */
final class Command {
    /** What a busy machine may take for an answer where the library gives it a few seconds. */
    static final int PATIENCE_MS = 60_000;

    private final Map<String, List<String>> fields = new LinkedHashMap<>();

    static Command parse(String line) {
        Command command = new Command();
        for (String pair : line.trim().split("&")) {
            int split = pair.indexOf('=');
            String name = URLDecoder.decode(pair.substring(0, split), StandardCharsets.UTF_8);
            String value = URLDecoder.decode(pair.substring(split + 1), StandardCharsets.UTF_8);
            command.fields.computeIfAbsent(name, unused -> new ArrayList<>()).add(value);
        }
        return command;
    }

    boolean has(String name) {
        return fields.containsKey(name);
    }

    List<String> all(String name) {
        return fields.getOrDefault(name, Collections.emptyList());
    }

    String text(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException("the command has no field " + name);
        }
        return fields.get(name).get(0);
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(text(name)) : otherwise;
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }

    List<byte[]> bodies() {
        List<byte[]> bodies = new ArrayList<>();
        for (String body : all("body")) {
            bodies.add(Base64.getDecoder().decode(body));
        }
        return bodies;
    }

    byte[] body() {
        return bodies().get(0);
    }

    /** What every kind of client is told; all else stays as the library has it. */
    void configure(ClientConfig client) {
        client.setNamesrvAddr(text("ns"));
        client.setInstanceName(text("instance"));
        client.setVipChannelEnabled(flag("vip"));
        if (has("heartbeat_ms")) {
            client.setHeartbeatBrokerInterval(number("heartbeat_ms", 0));
        }
        if (has("route_ms")) {
            client.setPollNameServerInterval(number("route_ms", 0));
        }
        if (!has("route_ms") || flag("patient")) {
            // Not where brokers go and come back: 4.9 waits so long for the answer of a dead one.
            client.setMqClientApiTimeout(PATIENCE_MS);
        }
    }
}
