import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by name; each message that a listener is given becomes an event line. */
final class Pushing {
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<Long>> watched = new ConcurrentHashMap<>();
    private final Consumer<Map<String, Object>> emit;
    private Producing producing;

    Pushing(Consumer<Map<String, Object>> emit) {
        this.emit = emit;
    }

    /** Who sends the replies of listeners that were told to reply. */
    void replyThrough(Producing chosen) {
        producing = chosen;
    }

    /** When a listener is given a message with this text, in nanoseconds of this process. */
    CompletableFuture<Long> watch(String text) {
        return watched.computeIfAbsent(text, unused -> new CompletableFuture<>());
    }

    Object perform(String op, Command command) throws Exception {
        switch (op) {
            case "push.start": return start(command);
            case "push.queues": return queues(command);
            case "push.pop_queues": return popQueues(command);
            case "push.progress": return progress(command);
            case "push.suspend": consumers.get(command.text("consumer")).suspend(); return true;
            case "push.resume": consumers.get(command.text("consumer")).resume(); return true;
            case "push.close": consumers.remove(command.text("consumer")).shutdown(); return true;
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private Object start(Command command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.text("group"));
        command.configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            command.text("start_at", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET.name())));
        Reflected.setEnum(consumer, "setMessageModel", command.text("model", "CLUSTERING"));
        consumer.setConsumeMessageBatchMaxSize(command.number("batch", 1));
        consumer.setPullBatchSize(command.number("pull_batch", 32));
        consumer.setMaxReconsumeTimes(command.number("retries_max", -1));
        consumer.setSuspendCurrentQueueTimeMillis(command.number("suspend_ms", 100));
        if (command.has("threads")) {
            consumer.setConsumeThreadMax(command.number("threads", 1));
            consumer.setConsumeThreadMin(command.number("threads", 1));
        }
        if (command.flag("broker_divides")) {
            Reflected.set(consumer, "setClientRebalance", false);
        }
        for (String topic : command.all("topic")) {
            if (command.has("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(command.text("sql")));
            } else {
                consumer.subscribe(topic, command.text("expression", "*"));
            }
        }
        Listener listener = new Listener(command);
        if (command.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) listener::inOrder);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) listener::atOnce);
        }
        consumers.put(command.text("consumer"), consumer);
        consumer.start();
        return consumer.buildMQClientId();
    }

    private Object queues(Command command) {
        DefaultMQPushConsumer consumer = consumers.get(command.text("consumer"));
        return Described.queueIds(
            consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                .keySet(),
            command.text("topic"));
    }

    /** The queues from which it pops; -1 stands for a whole broker. */
    private Object popQueues(Command command) throws Exception {
        Object divided = consumers.get(command.text("consumer"))
            .getDefaultMQPushConsumerImpl().getRebalanceImpl();
        return Described.queueIds(Reflected.popQueues(divided), command.text("topic"));
    }

    /** How far each held queue of the topic is done, whether the broker was told yet or not. */
    private Object progress(Command command) {
        DefaultMQPushConsumer consumer = consumers.get(command.text("consumer"));
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        Map<String, Object> found = new LinkedHashMap<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(command.text("topic"))) {
                found.put(String.valueOf(queue.getQueueId()),
                    offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY));
            }
        }
        return found;
    }

    /** Accepts everything but messages whose text starts with "fail", those after some attempts. */
    private final class Listener {
        private final String name;
        private final boolean brief;
        private final int failures;
        private final int delayLevel;
        private final int workMs;
        private final String replyBy;
        private final Map<String, Integer> attempts = new ConcurrentHashMap<>();

        Listener(Command command) {
            name = command.text("consumer");
            brief = command.flag("brief");
            failures = command.number("failures", 0);
            delayLevel = command.number("delay_level", 0);
            workMs = command.number("work_ms", 0);
            replyBy = command.text("reply_by", "");
        }

        ConsumeConcurrentlyStatus atOnce(
            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            context.setDelayLevelWhenNextConsume(delayLevel);
            if (!replyBy.isEmpty()) {
                messages.forEach(this::reply);
            }
            return accepts(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }

        private void reply(MessageExt message) {
            try {
                byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8))
                    .getBytes(StandardCharsets.UTF_8);
                producing.named(replyBy).send(MessageUtil.createReplyMessage(message, body));
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        }

        ConsumeOrderlyStatus inOrder(List<MessageExt> messages, ConsumeOrderlyContext context) {
            return accepts(messages) ? ConsumeOrderlyStatus.SUCCESS
                : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }

        private boolean accepts(List<MessageExt> messages) {
            long now = System.nanoTime();
            boolean accepted = true;
            List<Object> described = new ArrayList<>();
            for (MessageExt message : messages) {
                described.add(brief ? Described.brief(message) : Described.message(message));
                accepted &= accepts(message, now);
            }
            work();
            Map<String, Object> event = new LinkedHashMap<>();
            event.put("event", "received");
            event.put("consumer", name);
            event.put("messages", described);
            emit.accept(event);
            return accepted;
        }

        private boolean accepts(MessageExt message, long now) {
            if (message.getBody().length > 64) {
                return true;
            }
            String text = new String(message.getBody(), StandardCharsets.UTF_8);
            CompletableFuture<Long> waiting = watched.get(text);
            if (waiting != null) {
                waiting.complete(now);
            }
            return !text.startsWith("fail")
                || attempts.merge(message.getMsgId(), 1, Integer::sum) > failures;
        }

        private void work() {
            if (workMs > 0) {
                try {
                    Thread.sleep(workMs);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }
}
