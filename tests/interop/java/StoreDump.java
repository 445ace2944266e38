import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/** What the store serves to readers, as rows: every queue, every message. Reads only. */
final class StoreDump {
    private static final String GROUP = "interop";
    private static final int MESSAGES_PER_READ = 32;

    private StoreDump() { }

    /** Messages and then a summary of every queue that the store knows, by topic and queue id. */
    static void emit(DefaultMessageStore store, Consumer<Map<String, Object>> rows) throws Exception {
        TreeMap<String, TreeSet<Integer>> queueIds = new TreeMap<>();
        for (var topic : store.getConsumeQueueTable().entrySet()) {
            queueIds.put(topic.getKey(), new TreeSet<>(topic.getValue().keySet()));
        }
        for (var topic : queueIds.entrySet()) {
            for (int queueId : topic.getValue()) {
                emitQueue(store, topic.getKey(), queueId, rows);
            }
        }
    }

    private static void emitQueue(
            DefaultMessageStore store, String topic, int queueId, Consumer<Map<String, Object>> rows)
            throws Exception {
        long minOffset = store.getMinOffsetInQueue(topic, queueId);
        long maxOffset = store.getMaxOffsetInQueue(topic, queueId);
        if (maxOffset == 0) {
            return; // Only looked up (4.9 does so for each delay level): nothing was ever in it.
        }
        String lastStatus = null;
        long offset = minOffset;
        while (offset < maxOffset) {
            GetMessageResult result =
                store.getMessage(GROUP, topic, queueId, offset, MESSAGES_PER_READ, null);
            lastStatus = result.getStatus().name();
            long nextOffset = result.getNextBeginOffset();
            for (ByteBuffer record : result.getMessageBufferList()) {
                rows.accept(messageRow(record));
            }
            result.release();
            if (nextOffset <= offset) {
                break;
            }
            offset = nextOffset;
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("row", "queue");
        row.put("topic", topic);
        row.put("queue_id", queueId);
        row.put("min_offset", minOffset);
        row.put("max_offset", maxOffset);
        row.put("reached_offset", offset);
        row.put("last_status", lastStatus);
        rows.accept(row);
    }

    static Map<String, Object> messageRow(ByteBuffer record) {
        int recordSize = record.remaining();
        MessageExt message = MessageDecoder.decode(record, true, false);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("row", "message");
        if (message == null) {
            row.put("undecodable_size", recordSize);
            return row;
        }
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("position", message.getCommitLogOffset());
        row.put("record_size", message.getStoreSize());
        row.put("message_id", message.getMsgId());
        row.put("store_timestamp_ms", message.getStoreTimestamp());
        row.put("born_timestamp_ms", message.getBornTimestamp());
        row.put("store_host", hostText(message.getStoreHost()));
        row.put("born_host", hostText(message.getBornHost()));
        row.put("sys_flag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("body_crc", message.getBodyCRC());
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("prepared_transaction_position", message.getPreparedTransactionOffset());
        byte[] body = message.getBody();
        row.put("body", Base64.getEncoder().encodeToString(body == null ? new byte[0] : body));
        Map<String, String> properties = message.getProperties(); // 4.9 leaves it null if there are none
        row.put("properties", properties == null ? Map.of() : new TreeMap<>(properties));
        return row;
    }

    private static String hostText(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }
}
