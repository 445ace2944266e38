import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A real transaction producer: name server and group as arguments, one "topic body" per line of
 * standard input, rows of words on standard output.
 *
 * <p>The body says what happens to it, one word for the local transaction and one for each check,
 * separated by dashes: "unknown-unknown-commit-7" is committed at the second check. Other words mean
 * the same as "unknown".
 */
public final class TransactionDriver implements TransactionListener {
    private final PrintStream out;
    private final Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();

    private TransactionDriver(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        TransactionMQProducer producer = new TransactionMQProducer(arguments[1]);
        producer.setNamesrvAddr(arguments[0]);
        producer.setHeartbeatBrokerInterval(1_000);
        producer.setPollNameServerInterval(1_000);
        producer.setSendMsgTimeout(60_000);
        producer.setTransactionListener(new TransactionDriver(out));
        producer.start();
        out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Message message = new Message(words[0], "A", words[1].getBytes(StandardCharsets.UTF_8));
            try {
                TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
                out.println(String.join(" ", "sent", words[1], sent.getSendStatus().name(),
                    sent.getLocalTransactionState().name(), sent.getMsgId(),
                    String.valueOf(sent.getTransactionId())));
            } catch (Exception failure) {
                failure.printStackTrace();
                out.println("failed " + words[1]);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return state(new String(message.getBody(), StandardCharsets.UTF_8), 0);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        int times = checks.computeIfAbsent(body, unused -> new AtomicInteger()).incrementAndGet();
        LocalTransactionState state = state(body, times);
        out.println(String.join(" ", "checked", body, state.name(), message.getTransactionId(), message.getTopic(),
            String.valueOf(message.getProperty("TRANSACTION_CHECK_TIMES"))));
        return state;
    }

    private static LocalTransactionState state(String body, int number) {
        String[] words = body.split("-");
        String word = number < words.length ? words[number] : "";
        switch (word) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }
}
