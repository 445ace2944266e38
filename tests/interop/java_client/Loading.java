import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Load with figures: threads that send without pause, and a consumer that counts. */
final class Loading {
    private static final long CONSUME_LIMIT_S = 300;

    private final Producing producing;

    Loading(Producing producing) {
        this.producing = producing;
    }

    Object perform(String op, Command command) throws Exception {
        switch (op) {
            case "load.produce": return produce(command);
            case "load.consume": return consume(command);
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    /** As Apache's own benchmark: one producer, threads that each send when the last is answered. */
    private Object produce(Command command) throws Exception {
        DefaultMQProducer producer = producing.producer(command);
        String topic = command.text("topic");
        int batch = command.number("batch", 1);
        byte[] body = new byte[command.number("size", 100)];
        Arrays.fill(body, (byte) 'x');
        long started = System.nanoTime();
        long deadline = started + TimeUnit.MILLISECONDS.toNanos(command.number("ms"));
        List<Sender> senders = new ArrayList<>();
        for (int number = 0; number < command.number("threads", 1); number++) {
            Sender sender = new Sender(producer, topic, body, batch, deadline);
            senders.add(sender);
            sender.start();
        }
        long failed = 0;
        int sends = 0;
        for (Sender sender : senders) {
            sender.join();
            failed += sender.failed;
            sends += sender.count;
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        long[] spent = new long[sends];
        int filled = 0;
        for (Sender sender : senders) {
            System.arraycopy(sender.spent, 0, spent, filled, sender.count);
            filled += sender.count;
        }
        Arrays.sort(spent);
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("sent", (long) sends * batch);
        figures.put("failed", failed);
        figures.put("seconds", seconds);
        figures.put("p50_us", sends == 0 ? 0 : spent[sends / 2] / 1000);
        figures.put("p99_us", sends == 0 ? 0 : spent[(int) (sends * 0.99)] / 1000);
        return figures;
    }

    private static final class Sender extends Thread {
        private final DefaultMQProducer producer;
        private final String topic;
        private final byte[] body;
        private final int batch;
        private final long deadline;
        private long[] spent = new long[1 << 12];
        private int count;
        private long failed;

        Sender(DefaultMQProducer producer, String topic, byte[] body, int batch, long deadline) {
            this.producer = producer;
            this.topic = topic;
            this.body = body;
            this.batch = batch;
            this.deadline = deadline;
        }

        @Override
        public void run() {
            for (long now = System.nanoTime(); now < deadline; now = System.nanoTime()) {
                try {
                    send();
                } catch (Exception failure) {
                    failed++;
                    continue;
                }
                if (count == spent.length) {
                    spent = Arrays.copyOf(spent, count * 2);
                }
                spent[count++] = System.nanoTime() - now;
            }
        }

        private void send() throws Exception {
            if (batch == 1) {
                producer.send(new Message(topic, body));
                return;
            }
            List<Message> messages = new ArrayList<>(batch);
            for (int number = 0; number < batch; number++) {
                messages.add(new Message(topic, body));
            }
            producer.send(messages);
        }
    }

    /** Seconds from the first to the last of "count" messages that a new group is given. */
    private Object consume(Command command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.text("group"));
        command.configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.text("topic"), "*");
        long count = command.number("count");
        AtomicLong received = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        AtomicLong last = new AtomicLong();
        AtomicInteger calls = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (calls.getAndIncrement() == 0) {
                first.set(System.nanoTime());
            }
            if (received.addAndGet(messages.size()) >= count) {
                last.set(System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = done.await(CONSUME_LIMIT_S, TimeUnit.SECONDS);
        consumer.shutdown();
        if (!all) {
            throw new IllegalStateException("only " + received + " of " + count + " messages");
        }
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("seconds", (last.get() - first.get()) / 1e9);
        return figures;
    }
}
