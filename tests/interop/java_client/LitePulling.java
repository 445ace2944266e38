import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers by name: subscribed or with assigned queues, polling and seeking. */
final class LitePulling {
    private final Map<String, DefaultLitePullConsumer> consumers = new ConcurrentHashMap<>();

    Object perform(String op, Command command) throws Exception {
        if (op.equals("lite.start")) {
            return start(command);
        }
        DefaultLitePullConsumer consumer = consumers.get(command.text("consumer"));
        switch (op) {
            case "lite.poll": return poll(consumer, command);
            case "lite.assigned":
                return Described.queueIds(consumer.assignment(), command.text("topic"));
            case "lite.seek": consumer.seek(queue(command), command.number("offset")); return true;
            case "lite.seek_begin": consumer.seekToBegin(queue(command)); return true;
            case "lite.seek_end": consumer.seekToEnd(queue(command)); return true;
            case "lite.commit": consumer.commitSync(); return true;
            case "lite.committed": return consumer.committed(queue(command));
            case "lite.at_time":
                return consumer.offsetForTimestamp(queue(command), command.number("timestamp"));
            case "lite.pause": consumer.pause(List.of(queue(command))); return true;
            case "lite.resume": consumer.resume(List.of(queue(command))); return true;
            case "lite.close":
                consumers.remove(command.text("consumer")).shutdown();
                return true;
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private Object start(Command command) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.text("group"));
        command.configure(consumer);
        consumer.setAutoCommit(command.flag("auto_commit"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (command.flag("subscribe")) {
            consumer.subscribe(command.text("topic"), command.text("expression", "*"));
        }
        consumer.start();
        if (!command.flag("subscribe")) {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(command.text("topic"));
            consumer.assign(new ArrayList<>(queues));
        }
        consumers.put(command.text("consumer"), consumer);
        return consumer.buildMQClientId();
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(
            command.text("topic"), command.text("broker"), command.number("queue", 0));
    }

    /** Polls until "count" messages came, or until one poll of "timeout_ms" brought nothing. */
    private static Object poll(DefaultLitePullConsumer consumer, Command command) {
        List<Object> described = new ArrayList<>();
        int count = command.number("count", 1);
        while (described.size() < count) {
            List<MessageExt> messages = consumer.poll(command.number("timeout_ms", 150_000));
            if (messages.isEmpty()) {
                break;
            }
            described.addAll(Described.messages(messages));
        }
        Map<String, Object> polled = new LinkedHashMap<>();
        polled.put("messages", described);
        return polled;
    }
}
