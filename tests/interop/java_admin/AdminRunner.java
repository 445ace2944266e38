import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs the published mqadmin many times in one process: starting Java costs more than a command.
 *
 * A line of input is the words of one command, each in Base64, separated by blanks. A line of
 * output is what the command printed, in Base64, and the request codes that it sent. Words that
 * begin with a plus keep a consumer or a producer alive beside the commands, so that there is
 * somebody to ask about.
 */
public final class AdminRunner {
    private static final ConcurrentMap<String, DefaultMQPushConsumer> CONSUMERS =
        new ConcurrentHashMap<>();
    private static final ConcurrentMap<String, AtomicInteger> CONSUMED =
        new ConcurrentHashMap<>();
    private static final ConcurrentMap<String, DefaultMQProducer> PRODUCERS =
        new ConcurrentHashMap<>();

    private AdminRunner() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            String[] words = line.isEmpty() ? new String[0] : line.split(" ");
            for (int place = 0; place < words.length; place++) {
                byte[] raw = Base64.getDecoder().decode(words[place]);
                words[place] = new String(raw, StandardCharsets.UTF_8);
            }
            Codes codes = new Codes();
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream collector = new PrintStream(printed, true, "UTF-8");
            System.setOut(collector);
            System.setErr(collector);
            try {
                run(words, codes);
            } catch (Throwable error) {
                error.printStackTrace(collector);
            }
            collector.flush();
            answers.println(
                Base64.getEncoder().encodeToString(printed.toByteArray()) + " " + codes);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] words, RPCHook hook) throws Exception {
        switch (words[0]) {
            case "+consumer":
                consume(words[1], words[2], words[3]);
                break;
            case "-consumer":
                CONSUMERS.remove(words[1]).shutdown();
                break;
            case "?consumer":
                System.out.print(CONSUMED.get(words[1]).get());
                break;
            case "+producer":
                DefaultMQProducer producer = new DefaultMQProducer(words[2]);
                producer.setNamesrvAddr(words[1]);
                producer.setInstanceName("producer-" + words[2]);
                producer.start();
                // Heartbeats go to brokers that a route has named, so one is asked for.
                producer.getDefaultMQProducerImpl().getmQClientFactory()
                    .updateTopicRouteInfoFromNameServer(words[3]);
                producer.getDefaultMQProducerImpl().getmQClientFactory()
                    .sendHeartbeatToAllBrokerWithLock();
                PRODUCERS.put(words[2], producer);
                break;
            default:
                forgetCommands();
                MQAdminStartup.main0(words, hook);
        }
    }

    /** Some commands keep a client that they have shut down; each run gets new ones. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())
                && List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static void consume(String servers, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setInstanceName("consumer-" + group);
        consumer.setPersistConsumerOffsetInterval(200);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicInteger consumed = new AtomicInteger();
        CONSUMED.put(group, consumed);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        CONSUMERS.put(group, consumer);
    }

    private static final class Codes implements RPCHook {
        private final ConcurrentSkipListSet<Integer> sent = new ConcurrentSkipListSet<>();

        @Override
        public void doBeforeRequest(String remoteAddr, RemotingCommand request) {
            sent.add(request.getCode());
        }

        @Override
        public void doAfterResponse(
            String remoteAddr, RemotingCommand request, RemotingCommand response) {
        }

        @Override
        public String toString() {
            StringBuilder text = new StringBuilder("codes");
            sent.forEach(code -> text.append(',').append(code));
            return text.toString();
        }
    }
}
