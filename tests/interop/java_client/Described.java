import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the clients hand out, as maps for the answer lines. */
final class Described {
    private Described() {}

    static Map<String, Object> failure(Throwable failure) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("type", failure.getClass().getSimpleName());
        described.put("message", String.valueOf(failure.getMessage()));
        if (failure instanceof MQBrokerException) {
            described.put("code", ((MQBrokerException) failure).getResponseCode());
        } else if (failure instanceof MQClientException) {
            described.put("code", ((MQClientException) failure).getResponseCode());
        }
        if (failure.getCause() != null) {
            described.put("cause", failure(failure.getCause()));
        }
        return described;
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("status", result.getSendStatus().name());
        described.put("msg_id", result.getMsgId());
        described.put("offset_msg_id", result.getOffsetMsgId());
        described.put("queue_offset", result.getQueueOffset());
        described.put("queue", result.getMessageQueue().getQueueId());
        described.put("topic", result.getMessageQueue().getTopic());
        described.put("broker", result.getMessageQueue().getBrokerName());
        described.put("region", result.getRegionId());
        described.put("trace_on", result.isTraceOn());
        return described;
    }

    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> described = brief(message);
        described.put("topic", message.getTopic());
        described.put("broker", message.getBrokerName());
        described.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        described.put("properties", message.getProperties());
        described.put("tags", message.getTags());
        described.put("keys", message.getKeys());
        described.put("flag", message.getFlag());
        described.put("sys_flag", message.getSysFlag());
        described.put("body_crc", message.getBodyCRC());
        described.put("msg_id", message.getMsgId());
        if (message instanceof MessageClientExt) {
            described.put("offset_msg_id", ((MessageClientExt) message).getOffsetMsgId());
        }
        described.put("born_timestamp", message.getBornTimestamp());
        described.put("born_host", address(message.getBornHost()));
        described.put("store_timestamp", message.getStoreTimestamp());
        described.put("store_host", address(message.getStoreHost()));
        described.put("store_size", message.getStoreSize());
        described.put("log_offset", message.getCommitLogOffset());
        return described;
    }

    static Map<String, Object> brief(MessageExt message) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("queue", message.getQueueId());
        described.put("offset", message.getQueueOffset());
        described.put("reconsume_times", message.getReconsumeTimes());
        if (message.getBody().length <= 64) {
            described.put("text", new String(message.getBody(), StandardCharsets.UTF_8));
        }
        return described;
    }

    static List<Object> messages(Collection<MessageExt> messages) {
        List<Object> described = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> described.add(message(message)));
        }
        return described;
    }

    static List<Integer> queueIds(Collection<MessageQueue> queues, String topic) {
        List<Integer> ids = new ArrayList<>();
        for (MessageQueue queue : queues) {
            if (queue.getTopic().equals(topic)) {
                ids.add(queue.getQueueId());
            }
        }
        ids.sort(null);
        return ids;
    }

    private static String address(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + ":" + internet.getPort();
    }
}
