import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** The few calls whose signatures differ between the client versions that we compile against. */
final class Reflected {
    private Reflected() {}

    /** Calls a setter whose only parameter is an enum, wherever that version keeps the enum. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setEnum(Object target, String setter, String constant) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                Class kind = method.getParameterTypes()[0];
                method.invoke(target, Enum.valueOf(kind, constant));
                return;
            }
        }
        throw new UnsupportedOperationException("this client has no " + setter);
    }

    /** Calls a setter of a flag that not every version has. */
    static void set(Object target, String setter, boolean value) throws Exception {
        try {
            target.getClass().getMethod(setter, boolean.class).invoke(target, value);
        } catch (NoSuchMethodException missing) {
            throw new UnsupportedOperationException("this client has no " + setter);
        }
    }

    /** Where a consumer of 5.x pops. */
    @SuppressWarnings("unchecked")
    static Collection<MessageQueue> popQueues(Object divided) throws Exception {
        Method table = divided.getClass().getMethod("getPopProcessQueueTable");
        return ((Map<MessageQueue, ?>) table.invoke(divided)).keySet();
    }

    /** 5.x wants attributes of the topic as well. */
    static void createTopic(DefaultMQProducer producer, String key, String topic, int queues)
        throws Throwable {
        for (Method method : DefaultMQProducer.class.getMethods()) {
            Class<?>[] kinds = method.getParameterTypes();
            if (!method.getName().equals("createTopic") || kinds.length < 3) {
                continue;
            }
            try {
                if (kinds.length == 3) {
                    method.invoke(producer, key, topic, queues);
                    return;
                }
                if (kinds.length == 4 && kinds[3] == java.util.Map.class) {
                    method.invoke(producer, key, topic, queues, Collections.emptyMap());
                    return;
                }
            } catch (InvocationTargetException failure) {
                throw failure.getCause();
            }
        }
        throw new UnsupportedOperationException("this client has no createTopic");
    }
}
