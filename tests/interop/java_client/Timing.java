import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** Messages that come at a time, and taking them back: what only 5.x has names for. */
final class Timing {
    private Timing() {}

    /** Properties that applications may set through methods of their own only, if at all. */
    static void apply(Message message, Command command) {
        for (String property : command.all("timer")) {
            int split = property.indexOf('=');
            MessageAccessor.putProperty(
                message, property.substring(0, split), property.substring(split + 1));
        }
    }

    static Map<String, Object> describe(SendResult result, Map<String, Object> described) {
        try {
            Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
            described.put("recall_handle", handle);
        } catch (ReflectiveOperationException withoutRecall) {
            described.put("recall_handle", null);
        }
        return described;
    }

    static Object recall(DefaultMQProducer producer, Command command) throws Exception {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, command.text("topic"), command.text("handle"));
        } catch (InvocationTargetException failure) {
            throw (Exception) failure.getCause();
        } catch (NoSuchMethodException withoutRecall) {
            throw new UnsupportedOperationException("this client cannot recall messages");
        }
    }
}
