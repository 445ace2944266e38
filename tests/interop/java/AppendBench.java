import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/**
 * Appends of equal messages, timed from the first put to the return of the last one.
 *
 * <p>The batch body is encoded once, before the clock starts: a broker receives it encoded. What is
 * timed is what the store does with it: splitting, checking, checksums, offsets, copying to the log.
 * Dispatch runs beside it as it does in a broker; the time until it has caught up is reported too.
 */
final class AppendBench {
    private static final String TOPIC = "BenchTopic";
    private static final InetSocketAddress STORE_HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final InetSocketAddress BORN_HOST = new InetSocketAddress("127.0.0.1", 20000);

    private final PeerStore peer;
    private final int batchCount;
    private final byte[] body;
    private final byte[] batchBody;
    private long recordBytes;

    AppendBench(PeerStore peer, int bodySize, int batchCount) {
        this.peer = peer;
        this.batchCount = batchCount;
        this.body = new byte[bodySize];
        Arrays.fill(body, (byte) 'x');
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < batchCount; i++) {
            messages.add(new Message(TOPIC, body));
        }
        this.batchBody = MessageDecoder.encodeMessages(messages);
    }

    /** Puts at least messageCount messages; a batch of 1 means putMessage, not putMessages. */
    Map<String, Object> round(long messageCount) throws Exception {
        recordBytes = 0;
        long sent = 0;
        long begun = System.nanoTime();
        while (sent < messageCount) {
            sent += batchCount == 1 ? putOne() : putBatch();
        }
        double appendSeconds = (System.nanoTime() - begun) / 1e9;
        peer.awaitDispatch();
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("row", "round");
        row.put("message_count", sent);
        row.put("body_bytes", sent * body.length);
        row.put("record_bytes", recordBytes);
        row.put("append_seconds", appendSeconds);
        row.put("dispatched_seconds", (System.nanoTime() - begun) / 1e9);
        return row;
    }

    private int putBatch() {
        MessageExtBatch batch = new MessageExtBatch();
        address(batch);
        batch.setBody(batchBody);
        check(peer.store.putMessages(batch));
        return batchCount;
    }

    private int putOne() {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        address(message);
        message.setBody(body);
        MessageAccessor.setProperties(message, new HashMap<>()); // 5.x looks into it unasked
        message.setPropertiesString("");
        check(peer.store.putMessage(message));
        return 1;
    }

    private static void address(MessageExt message) {
        message.setTopic(TOPIC);
        message.setQueueId(0);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN_HOST);
        message.setStoreHost(STORE_HOST);
    }

    private void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put answered " + result.getPutMessageStatus());
        }
        recordBytes += result.getAppendMessageResult().getWroteBytes();
    }
}
