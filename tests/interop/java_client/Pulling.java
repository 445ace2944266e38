import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers by name: one pull at a time with its status and offsets. */
@SuppressWarnings("deprecation")
final class Pulling {
    private final Map<String, DefaultMQPullConsumer> consumers = new ConcurrentHashMap<>();

    Object perform(String op, Command command) throws Exception {
        switch (op) {
            case "pull.start": return start(command);
            case "pull.pull": return pull(command);
            case "pull.rate": return rate(command);
            case "pull.close": consumers.remove(command.text("consumer")).shutdown(); return true;
            case "pull.commit":
                consumers.get(command.text("consumer"))
                    .updateConsumeOffset(queue(command), command.number("offset"));
                consumers.get(command.text("consumer")).getOffsetStore().persist(queue(command));
                return true;
            case "pull.committed":
                return consumers.get(command.text("consumer"))
                    .fetchConsumeOffset(queue(command), true);
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private Object start(Command command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.text("group"));
        command.configure(consumer);
        consumer.setConsumerPullTimeoutMillis(Command.PATIENCE_MS);
        consumer.start();
        consumers.put(command.text("consumer"), consumer);
        return consumer.buildMQClientId();
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(
            command.text("topic"), command.text("broker"), command.number("queue", 0));
    }

    /** Seconds of pulls one after the other until "rows" messages came; connected before. */
    private Object rate(Command command) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(command.text("consumer"));
        MessageQueue queue = queue(command);
        long rows = command.number("rows");
        int count = command.number("count", 32);
        consumer.pull(queue, "*", 0, count);
        long read = 0;
        long offset = 0;
        long started = System.nanoTime();
        while (read < rows) {
            PullResult result = consumer.pull(queue, "*", offset, count);
            if (result.getMsgFoundList() == null) {
                throw new IllegalStateException("only " + read + " of " + rows + " messages");
            }
            read += result.getMsgFoundList().size();
            offset = result.getNextBeginOffset();
        }
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("read", read);
        figures.put("seconds", (System.nanoTime() - started) / 1e9);
        return figures;
    }

    private Object pull(Command command) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(command.text("consumer"));
        String expression = command.text("expression", "*");
        long offset = command.number("offset");
        int count = command.number("count", 32);
        long started = System.nanoTime();
        PullResult result = command.flag("block")
            ? consumer.pullBlockIfNotFound(queue(command), expression, offset, count)
            : consumer.pull(queue(command), expression, offset, count);
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("status", result.getPullStatus().name());
        described.put("next", result.getNextBeginOffset());
        described.put("min", result.getMinOffset());
        described.put("max", result.getMaxOffset());
        described.put("messages", Described.messages(result.getMsgFoundList()));
        described.put("spent_ms", (System.nanoTime() - started) / 1_000_000);
        return described;
    }
}
