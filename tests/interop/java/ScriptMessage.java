import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
// The message classes moved between these two packages from 4.9 to 5.x; wildcards find them in both.
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.*;

/**
 * Turns one line of a script into what the store's put methods take, filling in what a broker would
 * have filled in: hosts, born time, the property string and the address family flags.
 */
final class ScriptMessage {
    private ScriptMessage() { }

    static MessageExtBrokerInner single(JSONObject line, boolean storeRewritesDelay) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        Map<String, String> properties = properties(line);
        addressing(message, line);
        message.setBody(body(line));
        MessageAccessor.setProperties(message, properties);
        int delayLevel = line.getIntValue("delay_level");
        if (delayLevel > 0 && !storeRewritesDelay) {
            properties.put(MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
            properties.put(MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
            message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
            message.setQueueId(delayLevel - 1);
        }
        message.setPropertiesString(propertiesString(line, properties));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
        return message;
    }

    /** Topic, queue, hosts, born time and flags come from the line, the rest from its "messages". */
    static MessageExtBatch batch(JSONObject line) throws Exception {
        JSONArray elements = line.getJSONArray("messages");
        List<Message> messages = new ArrayList<>(elements.size());
        for (int i = 0; i < elements.size(); i++) {
            JSONObject element = elements.getJSONObject(i);
            Message message = new Message(line.getString("topic"), body(element));
            message.setFlag(element.getIntValue("flag"));
            MessageAccessor.setProperties(message, properties(element));
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        addressing(batch, line);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return batch;
    }

    private static void addressing(MessageExt message, JSONObject line) throws Exception {
        message.setTopic(line.getString("topic"));
        message.setQueueId(line.getIntValue("queue_id"));
        message.setFlag(line.getIntValue("flag"));
        message.setSysFlag(line.getIntValue("sys_flag"));
        message.setReconsumeTimes(line.getIntValue("reconsume_times"));
        message.setPreparedTransactionOffset(line.getLongValue("prepared_transaction_position"));
        Long bornTimestamp = line.getLong("born_timestamp_ms");
        message.setBornTimestamp(bornTimestamp == null ? System.currentTimeMillis() : bornTimestamp);
        InetSocketAddress bornHost = host(line.getString("born_host"), "127.0.0.1:20000");
        InetSocketAddress storeHost = host(line.getString("store_host"), "127.0.0.1:10911");
        message.setBornHost(bornHost);
        message.setStoreHost(storeHost);
        if (bornHost.getAddress() instanceof Inet6Address) {
            message.setBornHostV6Flag();
        }
        if (storeHost.getAddress() instanceof Inet6Address) {
            message.setStoreHostAddressV6Flag();
        }
    }

    /** "properties" in the script's order, then tags, keys, unique key and delay where given. */
    private static Map<String, String> properties(JSONObject line) {
        Map<String, String> properties = new LinkedHashMap<>();
        JSONObject given = line.getJSONObject("properties");
        if (given != null) {
            given.forEach((name, value) -> properties.put(name, String.valueOf(value)));
        }
        putIfGiven(properties, MessageConst.PROPERTY_TAGS, line.getString("tags"));
        putIfGiven(properties, MessageConst.PROPERTY_KEYS, line.getString("keys"));
        putIfGiven(
            properties, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, line.getString("unique_key"));
        putIfGiven(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL, line.getString("delay_level"));
        return properties;
    }

    private static String propertiesString(JSONObject line, Map<String, String> properties) {
        String raw = line.getString("properties_string");
        return raw != null ? raw : MessageDecoder.messageProperties2String(properties);
    }

    private static void putIfGiven(Map<String, String> properties, String name, String value) {
        if (value != null) {
            properties.put(name, value);
        }
    }

    private static byte[] body(JSONObject line) {
        return Base64.getDecoder().decode(line.getString("body"));
    }

    private static InetSocketAddress host(String given, String otherwise) throws Exception {
        String text = given == null ? otherwise : given;
        int colon = text.lastIndexOf(':');
        String address = text.substring(0, colon).replace("[", "").replace("]", "");
        int port = Integer.parseInt(text.substring(colon + 1));
        return new InetSocketAddress(InetAddress.getByName(address), port);
    }
}
