import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Less common features of the client, each from its first call to its last in one command. */
final class Featuring {
    private static final int LIMIT_S = 60;
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    Object perform(String op, Command command) throws Exception {
        switch (op) {
            case "feature.namespace": return namespace(command);
            case "feature.trace": return trace(command);
            case "feature.commit_by_hand": return commitByHand(command);
            case "feature.partly": return partly(command);
            case "feature.suspended": return suspended(command);
            case "feature.callbacks": return callbacks(command);
            case "feature.auto_batch": return autoBatch(command);
            case "feature.light_heartbeats": return lightHeartbeats(command);
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private static <C extends ClientConfig> C configured(C client, Command command) {
        client.setNamesrvAddr(command.text("ns"));
        client.setInstanceName("feature-" + NUMBERS.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setMqClientApiTimeout(Command.PATIENCE_MS);
        // Topics that come later, such as those of retries, are found soon.
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(1_000);
        return client;
    }

    private static DefaultMQProducer producer(Command command) {
        return timed(configured(new DefaultMQProducer(command.text("group") + "-p"), command));
    }

    private static DefaultMQProducer timed(DefaultMQProducer producer) {
        producer.setSendMsgTimeout(Command.PATIENCE_MS);
        return producer;
    }

    private static DefaultMQPushConsumer consumer(Command command) {
        return fromFirst(configured(new DefaultMQPushConsumer(command.text("group")), command));
    }

    private static DefaultMQPushConsumer fromFirst(DefaultMQPushConsumer consumer) {
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // A shutdown commits what is done: who calls it from what a listener has seen must wait
        // until that listener has also returned.
        consumer.setAwaitTerminationMillisWhenShutdown(Command.PATIENCE_MS);
        return consumer;
    }

    private static Message message(Command command, String text) {
        return new Message(command.text("topic"), text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(command.text("topic"), command.text("broker"), 0);
    }

    private static <T> List<T> shared() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    private static void until(Callable<Boolean> reached, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        while (!reached.call()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not reached in " + LIMIT_S + " s: " + what);
            }
            Thread.sleep(20);
        }
    }

    private static Object sorted(List<String> texts) {
        List<String> sorted = new ArrayList<>(texts);
        Collections.sort(sorted);
        return sorted;
    }

    /** A message that fails once, in a namespace: the topics and tries that the listener sees. */
    private static Object namespace(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        DefaultMQPushConsumer consumer = consumer(command);
        producer.setNamespace(command.text("namespace"));
        consumer.setNamespace(command.text("namespace"));
        List<String> seen = shared();
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                seen.add(message.getTopic() + " " + message.getReconsumeTimes());
            }
            return seen.size() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        consumer.start();
        producer.send(message(command, "within"));
        until(() -> seen.size() >= 2, "the second try");
        consumer.shutdown();
        producer.shutdown();
        return seen;
    }

    /** A traced send and consumption; the id whose traces are to be found. */
    private static Object trace(Command command) throws Exception {
        String group = command.text("group");
        DefaultMQProducer producer =
            timed(configured(new DefaultMQProducer(group + "-p", true, null), command));
        DefaultMQPushConsumer consumer =
            fromFirst(configured(new DefaultMQPushConsumer(group, true, null), command));
        List<String> seen = shared();
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        consumer.start();
        SendResult sent = producer.send(message(command, "traced"));
        until(() -> seen.size() == 1, "the traced message");
        // They are sent now and then; a client that is shut down does not wait for them.
        until(() -> traces(producer, sent.getMsgId()) >= 2, "the traces of both");
        consumer.shutdown();
        producer.shutdown();
        return sent.getMsgId();
    }

    private static int traces(DefaultMQProducer producer, String id) throws Exception {
        try {
            return producer.queryMessage("RMQ_SYS_TRACE_TOPIC", id, 32, 0, Long.MAX_VALUE)
                .getMessageList().size();
        } catch (MQClientException none) {
            return 0;
        }
    }

    /** In order and without automatic commits: rolled back once, then committed. */
    private static Object commitByHand(Command command) throws Exception {
        DefaultMQPushConsumer consumer = consumer(command);
        consumer.setConsumeMessageBatchMaxSize(3);
        List<String> seen = shared();
        AtomicInteger calls = new AtomicInteger();
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            context.setAutoCommit(false);
            context.setSuspendCurrentQueueTimeMillis(50);
            messages.forEach(message -> seen.add(text(message)));
            return calls.incrementAndGet() == 1 ? ConsumeOrderlyStatus.ROLLBACK
                : ConsumeOrderlyStatus.COMMIT;
        });
        consumer.start();
        until(() -> seen.size() >= 6, "three messages twice");
        consumer.shutdown();
        return seen;
    }

    /** A batch of four of which only the first two are acknowledged. */
    private static Object partly(Command command) throws Exception {
        DefaultMQPushConsumer consumer = consumer(command);
        consumer.setConsumeMessageBatchMaxSize(4);
        List<String> seen = shared();
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> seen.add(text(m) + " " + m.getReconsumeTimes()));
            if (messages.size() == 4) {
                context.setAckIndex(1);
                context.setDelayLevelWhenNextConsume(1);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        until(() -> seen.size() >= 6, "two messages again");
        consumer.shutdown();
        return sorted(seen);
    }

    /** What had come before the consumer was resumed, and in all. */
    private static Object suspended(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        DefaultMQPushConsumer consumer = consumer(command);
        List<String> seen = shared();
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        consumer.start();
        producer.send(message(command, "before"), queue(command));
        until(() -> seen.size() == 1, "the first message");
        consumer.suspend();
        // The pull that waits at the broker now still brings one message. Apache's broker may find
        // that out only when it looks at waiting pulls, every five seconds.
        producer.send(message(command, "meanwhile"), queue(command));
        long latest = System.currentTimeMillis() + 8_000;
        while (seen.size() < 2 && System.currentTimeMillis() < latest) {
            Thread.sleep(50);
        }
        producer.send(message(command, "later"), queue(command));
        Thread.sleep(1_500);
        List<String> early = new ArrayList<>(seen);
        consumer.resume();
        until(() -> seen.size() >= 3, "what came meanwhile");
        consumer.shutdown();
        producer.shutdown();
        Map<String, Object> both = new LinkedHashMap<>();
        both.put("early", early);
        both.put("all", seen);
        return both;
    }

    private static final class Answered extends CompletableFuture<PullResult>
        implements PullCallback {
        @Override
        public void onSuccess(PullResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable failure) {
            completeExceptionally(failure);
        }
    }

    /** Pulls with callbacks: what is there, what comes later; the first message is sent back. */
    @SuppressWarnings("deprecation")
    private static Object callbacks(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        DefaultMQPullConsumer consumer =
            configured(new DefaultMQPullConsumer(command.text("group")), command);
        producer.start();
        consumer.start();
        MessageQueue queue = queue(command);
        producer.send(message(command, "one"), queue);
        until(() -> consumer.maxOffset(queue) == 1, "one message");
        Answered now = new Answered();
        consumer.pull(queue, "*", 0, 32, now);
        Answered later = new Answered();
        consumer.pullBlockIfNotFound(queue, "*", 1, 32, later);
        producer.send(message(command, "two"), queue);
        List<Object> found = new ArrayList<>();
        for (Answered answered : List.of(now, later)) {
            PullResult result = answered.get(LIMIT_S, TimeUnit.SECONDS);
            found.add(result.getPullStatus() + " " + text(result.getMsgFoundList().get(0)));
        }
        consumer.sendMessageBack(now.get().getMsgFoundList().get(0), 1);
        consumer.shutdown();
        producer.shutdown();
        return found;
    }

    private static final class Sent extends CompletableFuture<SendResult> implements SendCallback {
        @Override
        public void onSuccess(SendResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable failure) {
            completeExceptionally(failure);
        }
    }

    /** Single sends that the client gathers into batches; the ids that they were given. */
    private static Object autoBatch(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        Reflected.set(producer, "setAutoBatch", true);
        producer.start();
        List<Sent> sends = new ArrayList<>();
        for (int number = 0; number < command.number("count", 0); number++) {
            Sent sent = new Sent();
            producer.send(message(command, "m" + number), sent);
            sends.add(sent);
        }
        List<String> ids = new ArrayList<>();
        for (Sent sent : sends) {
            ids.add(sent.get(LIMIT_S, TimeUnit.SECONDS).getMsgId());
        }
        producer.shutdown();
        return ids;
    }

    /** Heartbeats of the second kind, which say everything only when something changed. */
    private static Object lightHeartbeats(Command command) throws Exception {
        DefaultMQProducer producer = producer(command);
        DefaultMQPushConsumer consumer = consumer(command);
        List<String> seen = shared();
        for (ClientConfig client : List.of(producer, consumer)) {
            Reflected.set(client, "setUseHeartbeatV2", true);
            client.setHeartbeatBrokerInterval(300);
        }
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        consumer.start();
        for (int number = 1; number <= 3; number++) {
            int expected = number;
            producer.send(message(command, "m" + number));
            until(() -> seen.size() == expected, "message " + expected);
            // Several heartbeats that say nothing new.
            Thread.sleep(1_000);
        }
        consumer.shutdown();
        producer.shutdown();
        return sorted(seen);
    }
}
