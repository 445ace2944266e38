import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** The administration that every client carries: topics, offsets and look-ups, by a producer. */
final class Administering {
    private final Producing producing;

    Administering(Producing producing) {
        this.producing = producing;
    }

    Object perform(String op, Command command) throws Exception {
        DefaultMQProducer producer = producing.producer(command);
        switch (op) {
            case "admin.create_topic": return createTopic(producer, command);
            case "admin.queues":
                return Described.queueIds(
                    producer.fetchPublishMessageQueues(command.text("topic")),
                    command.text("topic"));
            case "admin.offsets": return offsets(producer, queue(command));
            case "admin.at_time":
                return producer.searchOffset(queue(command), command.number("timestamp"));
            case "admin.view":
                return Described.message(
                    producer.viewMessage(command.text("topic"), command.text("msg_id")));
            case "admin.query": return query(producer, command);
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private static Object createTopic(DefaultMQProducer producer, Command command)
        throws Exception {
        try {
            Reflected.createTopic(
                producer, command.text("key"), command.text("topic"), command.number("queues", 4));
        } catch (Exception | Error failure) {
            throw failure;
        } catch (Throwable failure) {
            throw new IllegalStateException(failure);
        }
        return true;
    }

    private static MessageQueue queue(Command command) {
        return new MessageQueue(
            command.text("topic"), command.text("broker"), command.number("queue", 0));
    }

    private static Object offsets(DefaultMQProducer producer, MessageQueue queue)
        throws Exception {
        Map<String, Object> offsets = new LinkedHashMap<>();
        offsets.put("min", producer.minOffset(queue));
        offsets.put("max", producer.maxOffset(queue));
        offsets.put("earliest_store_time", producer.earliestMsgStoreTime(queue));
        return offsets;
    }

    private static Object query(DefaultMQProducer producer, Command command) throws Exception {
        QueryResult result = producer.queryMessage(
            command.text("topic"), command.text("key"), command.number("count", 32),
            command.number("begin"), command.number("end"));
        return Described.messages(result.getMessageList());
    }
}
