import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transaction producers by name. The words of a body are its answers: the first is that of the
 * local transaction, the next ones those of the checks, each of which becomes an event line.
 */
final class Transacting {
    private final Map<String, TransactionMQProducer> producers = new ConcurrentHashMap<>();
    private final Consumer<Map<String, Object>> emit;

    Transacting(Consumer<Map<String, Object>> emit) {
        this.emit = emit;
    }

    Object perform(String op, Command command) throws Exception {
        String name = command.text("producer");
        switch (op) {
            case "transaction.start": return start(name, command);
            case "transaction.send":
                return Described.sent(producers.get(name).sendMessageInTransaction(
                    Producing.message(command, command.body()), null));
            case "transaction.close": producers.remove(name).shutdown(); return true;
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private Object start(String name, Command command) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(command.text("group"));
        command.configure(producer);
        producer.setSendMsgTimeout(command.number("timeout_ms", Command.PATIENCE_MS));
        if (command.has("retries")) {
            producer.setRetryTimesWhenSendFailed(command.number("retries", 0));
        }
        producer.setTransactionListener(new Deciding(name));
        producer.start();
        producers.put(name, producer);
        return producer.buildMQClientId();
    }

    private final class Deciding implements TransactionListener {
        private final String name;
        private final Map<String, Integer> checks = new ConcurrentHashMap<>();

        Deciding(String name) {
            this.name = name;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getBody(), 0);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            // Brokers may store a half again for each check, under another message id.
            int number = checks.merge(message.getTransactionId(), 1, Integer::sum);
            Map<String, Object> event = new LinkedHashMap<>();
            event.put("event", "received");
            event.put("consumer", name);
            event.put("messages", Collections.singletonList(Described.message(message)));
            emit.accept(event);
            return state(message.getBody(), number);
        }

        private LocalTransactionState state(byte[] body, int number) {
            String[] words = new String(body).split("-");
            switch (number < words.length ? words[number] : "") {
                case "commit": return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
                default: return LocalTransactionState.UNKNOW;
            }
        }
    }
}
