import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers by name: single sends of every kind, streams, floods and the delivery latency. */
final class Producing {
    private static final long ANSWER_LIMIT_S = 60;

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Flood> floods = new ConcurrentHashMap<>();
    private final Pushing pushing;

    Producing(Pushing pushing) {
        this.pushing = pushing;
    }

    DefaultMQProducer producer(Command command) {
        return named(command.text("producer"));
    }

    DefaultMQProducer named(String name) {
        DefaultMQProducer producer = producers.get(name);
        if (producer == null) {
            throw new IllegalArgumentException("no producer " + name);
        }
        return producer;
    }

    Object perform(String op, Command command) throws Exception {
        switch (op) {
            case "producer.start": return start(command);
            case "producer.send": return sent(command);
            case "producer.recall": return Timing.recall(producer(command), command);
            case "producer.async": return Described.sent(sendAsync(command));
            case "producer.oneway": return sendOneway(command);
            case "producer.batch": return Described.sent(sendBatch(command));
            case "producer.ordered": return Described.sent(sendOrdered(command));
            case "producer.request": return request(command);
            case "producer.stream": return stream(command);
            case "producer.latency": return latency(command);
            case "producer.flood": return flood(command);
            case "producer.flood_end": return floods.remove(command.text("producer")).end();
            case "producer.close": producers.remove(command.text("producer")).shutdown(); return true;
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private Object start(Command command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.text("group"));
        command.configure(producer);
        if (command.has("compress_over")) {
            producer.setCompressMsgBodyOverHowmuch(command.number("compress_over", 0));
        }
        if (command.has("size_max")) {
            producer.setMaxMessageSize(command.number("size_max", 0));
        }
        if (command.has("retries")) {
            producer.setRetryTimesWhenSendFailed(command.number("retries", 0));
        }
        if (command.has("compress_type")) {
            Reflected.setEnum(producer, "setCompressType", command.text("compress_type"));
        }
        producer.setSendMsgTimeout(command.number("timeout_ms", Command.PATIENCE_MS));
        producer.start();
        producer.getDefaultMQProducerImpl().getmQClientFactory().getMQAdminImpl()
            .setTimeoutMillis(Command.PATIENCE_MS);
        producers.put(command.text("producer"), producer);
        return producer.buildMQClientId();
    }

    static Message message(Command command, byte[] body) {
        Message message = new Message(command.text("topic"), body);
        if (command.has("tags")) {
            message.setTags(command.text("tags"));
        }
        if (command.has("keys")) {
            message.setKeys(command.text("keys"));
        }
        message.setFlag(command.number("flag", 0));
        if (command.has("delay_level")) {
            message.setDelayTimeLevel(command.number("delay_level", 0));
        }
        for (String property : command.all("property")) {
            int split = property.indexOf('=');
            message.putUserProperty(property.substring(0, split), property.substring(split + 1));
        }
        Timing.apply(message, command);
        return message;
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(
            command.text("topic"), command.text("broker"), command.number("queue", 0));
    }

    private Object sent(Command command) throws Exception {
        SendResult result = send(command);
        return Timing.describe(result, Described.sent(result));
    }

    private SendResult send(Command command) throws Exception {
        Message message = message(command, command.body());
        DefaultMQProducer producer = producer(command);
        return command.has("queue") ? producer.send(message, queue(command)) : producer.send(message);
    }

    private SendResult sendAsync(Command command) throws Exception {
        CompletableFuture<SendResult> answered = new CompletableFuture<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                answered.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                answered.completeExceptionally(failure);
            }
        };
        Message message = message(command, command.body());
        if (command.has("queue")) {
            producer(command).send(message, queue(command), callback);
        } else {
            producer(command).send(message, callback);
        }
        return answered.get(ANSWER_LIMIT_S, TimeUnit.SECONDS);
    }

    private Object sendOneway(Command command) throws Exception {
        Message message = message(command, command.body());
        if (command.has("queue")) {
            producer(command).sendOneway(message, queue(command));
        } else {
            producer(command).sendOneway(message);
        }
        return true;
    }

    private SendResult sendBatch(Command command) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (byte[] body : command.bodies()) {
            messages.add(message(command, body));
        }
        DefaultMQProducer producer = producer(command);
        return command.has("queue")
            ? producer.send(messages, queue(command)) : producer.send(messages);
    }

    private SendResult sendOrdered(Command command) throws Exception {
        return producer(command).send(
            message(command, command.body()), new SelectMessageQueueByHash(), command.text("shard"));
    }

    private Object request(Command command) throws Exception {
        Message reply = producer(command).request(
            message(command, command.body()), command.number("limit_ms"));
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("text", new String(reply.getBody(), StandardCharsets.UTF_8));
        described.put("properties", reply.getProperties());
        return described;
    }

    /** One thread per queue, each sends its part in order; the offsets of each queue in order. */
    private Object stream(Command command) throws Exception {
        int queues = command.number("queues", 1);
        int perQueue = command.number("count", 0) / queues;
        DefaultMQProducer producer = producer(command);
        Map<Integer, CompletableFuture<List<Long>>> parts = new LinkedHashMap<>();
        for (int number = 0; number < queues; number++) {
            MessageQueue queue =
                new MessageQueue(command.text("topic"), command.text("broker"), number);
            CompletableFuture<List<Long>> part = new CompletableFuture<>();
            parts.put(number, part);
            new Thread(() -> {
                try {
                    List<Long> offsets = new ArrayList<>();
                    for (int sent = 0; sent < perQueue; sent++) {
                        byte[] body = ("q" + queue.getQueueId() + "-" + sent).getBytes();
                        offsets.add(producer.send(new Message(queue.getTopic(), body), queue)
                            .getQueueOffset());
                    }
                    part.complete(offsets);
                } catch (Throwable failure) {
                    part.completeExceptionally(failure);
                }
            }).start();
        }
        Map<Integer, List<Long>> offsets = new LinkedHashMap<>();
        for (Map.Entry<Integer, CompletableFuture<List<Long>>> part : parts.entrySet()) {
            offsets.put(part.getKey(), part.getValue().get());
        }
        return offsets;
    }

    /** Microseconds from before the send until the waiting consumer's listener is called. */
    private Object latency(Command command) throws Exception {
        List<Long> spent = new ArrayList<>();
        for (int round = 0; round < command.number("rounds", 1); round++) {
            // The consumer's next pull must be waiting at the broker before the message comes.
            Thread.sleep(command.number("gap_ms", 20));
            // Watched texts are kept for good, so that each run needs its own.
            String text = command.text("mark", "") + round;
            CompletableFuture<Long> seen = pushing.watch(text);
            long started = System.nanoTime();
            producer(command).send(
                new Message(command.text("topic"), text.getBytes(StandardCharsets.UTF_8)));
            spent.add((seen.get(ANSWER_LIMIT_S, TimeUnit.SECONDS) - started) / 1000);
        }
        spent.sort(null);
        return spent;
    }

    private Object flood(Command command) {
        Flood flood = new Flood(
            producer(command), command.text("topic"), command.number("gap_ms", 1));
        floods.put(command.text("producer"), flood);
        flood.start();
        return true;
    }
}
