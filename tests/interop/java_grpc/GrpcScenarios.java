import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Drives gRPC clients of 5.x: a command per line on standard input, JSON lines on standard output,
 * as the driver of the other Java clients does. Ends with its standard input.
 */
public final class GrpcScenarios {
    private final PrintStream out;
    private final ExecutorService workers = Executors.newCachedThreadPool();
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, SimpleConsumer> simple = new ConcurrentHashMap<>();
    private final Map<String, PushConsumer> pushing = new ConcurrentHashMap<>();
    private final Map<String, Map<String, MessageView>> held = new ConcurrentHashMap<>();
    private final Map<String, Integer> attempts = new ConcurrentHashMap<>();

    private GrpcScenarios(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        GrpcScenarios scenarios = new GrpcScenarios(out);
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, String> command = parse(line);
            scenarios.workers.execute(() -> scenarios.emit(scenarios.answer(command)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, String> parse(String line) throws Exception {
        Map<String, String> found = new LinkedHashMap<>();
        for (String pair : line.split("&")) {
            int equals = pair.indexOf('=');
            found.put(URLDecoder.decode(pair.substring(0, equals), StandardCharsets.UTF_8),
                URLDecoder.decode(pair.substring(equals + 1), StandardCharsets.UTF_8));
        }
        return found;
    }

    private Map<String, Object> answer(Map<String, String> command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", Long.parseLong(command.get("id")));
        try {
            answer.put("done", perform(command));
        } catch (Throwable failure) {
            failure.printStackTrace();
            Map<String, Object> described = new LinkedHashMap<>();
            described.put("type", failure.getClass().getSimpleName());
            described.put("message", String.valueOf(failure.getMessage()));
            answer.put("error", described);
        }
        return answer;
    }

    private Object perform(Map<String, String> command) throws Exception {
        switch (command.get("op")) {
            case "producer.start": return startProducer(command);
            case "producer.send": return send(command);
            case "producer.close": producers.remove(command.get("producer")).close(); return true;
            case "simple.start": return startSimple(command);
            case "simple.receive": return receive(command);
            case "simple.ack": return ack(command);
            case "simple.change": return change(command);
            case "simple.close": simple.remove(command.get("consumer")).close(); return true;
            case "push.start": return startPush(command);
            case "push.close": pushing.remove(command.get("consumer")).close(); return true;
            default: throw new IllegalArgumentException("no such command");
        }
    }

    private static ClientConfiguration configuration(Map<String, String> command) {
        return ClientConfiguration.newBuilder().setEndpoints(command.get("proxy"))
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(30)).build();
    }

    private Object startProducer(Map<String, String> command) throws Exception {
        producers.put(command.get("producer"), provider.newProducerBuilder()
            .setClientConfiguration(configuration(command)).setTopics(command.get("topic"))
            .build());
        return true;
    }

    private Object send(Map<String, String> command) throws Exception {
        List<String> ids = new ArrayList<>();
        for (String text : command.get("texts").split(",")) {
            MessageBuilder builder = provider.newMessageBuilder().setTopic(command.get("topic"))
                .setBody(text.getBytes(StandardCharsets.UTF_8))
                .setTag(command.getOrDefault("tag", "A"));
            if (command.containsKey("message_group")) {
                builder.setMessageGroup(command.get("message_group"));
            }
            ids.add(producers.get(command.get("producer")).send(builder.build())
                .getMessageId().toString());
        }
        return ids;
    }

    private static Map<String, FilterExpression> subscriptions(Map<String, String> command) {
        return Collections.singletonMap(command.get("topic"), new FilterExpression(
            command.getOrDefault("expression", "*"), FilterExpressionType.TAG));
    }

    private Object startSimple(Map<String, String> command) throws Exception {
        simple.put(command.get("consumer"), provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(command))
            .setConsumerGroup(command.get("group"))
            .setAwaitDuration(Duration.ofMillis(Long.parseLong(command.get("await_ms"))))
            .setSubscriptionExpressions(subscriptions(command)).build());
        held.put(command.get("consumer"), new ConcurrentHashMap<>());
        return true;
    }

    private Object receive(Map<String, String> command) throws Exception {
        String name = command.get("consumer");
        List<Object> found = new ArrayList<>();
        List<MessageView> views = simple.get(name).receive(
            Integer.parseInt(command.getOrDefault("count", "32")),
            Duration.ofMillis(Long.parseLong(command.getOrDefault("invisible_ms", "30000"))));
        for (MessageView view : views) {
            held.get(name).put(text(view), view);
            found.add(described(view));
        }
        return found;
    }

    private Object ack(Map<String, String> command) throws Exception {
        String name = command.get("consumer");
        for (String text : command.get("texts").split(",")) {
            simple.get(name).ack(held.get(name).get(text));
        }
        return true;
    }

    private Object change(Map<String, String> command) throws Exception {
        String name = command.get("consumer");
        simple.get(name).changeInvisibleDuration(held.get(name).get(command.get("text")),
            Duration.ofMillis(Long.parseLong(command.get("invisible_ms"))));
        return true;
    }

    private Object startPush(Map<String, String> command) throws Exception {
        String name = command.get("consumer");
        int failures = Integer.parseInt(command.getOrDefault("failures", "0"));
        pushing.put(name, provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration(command))
            .setConsumerGroup(command.get("group"))
            .setSubscriptionExpressions(subscriptions(command))
            .setMessageListener(view -> consume(name, view, failures)).build());
        return true;
    }

    /** Accepts everything but messages whose text starts with "fail", those after some attempts. */
    private ConsumeResult consume(String name, MessageView view, int failures) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("event", "received");
        event.put("consumer", name);
        event.put("messages", Collections.singletonList(described(view)));
        emit(event);
        boolean fails = text(view).startsWith("fail")
            && attempts.merge(name + text(view), 1, Integer::sum) <= failures;
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private static String text(MessageView view) {
        byte[] body = new byte[view.getBody().remaining()];
        view.getBody().duplicate().get(body);
        return new String(body, StandardCharsets.UTF_8);
    }

    private static Map<String, Object> described(MessageView view) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("text", text(view));
        described.put("topic", view.getTopic());
        described.put("tag", view.getTag().orElse(""));
        described.put("msg_id", view.getMessageId().toString());
        described.put("attempt", view.getDeliveryAttempt());
        return described;
    }

    private void emit(Map<String, Object> line) {
        String text = JsonText.of(line);
        synchronized (out) {
            out.println(text);
            out.flush();
        }
    }
}
