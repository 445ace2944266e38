import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.mqclient.DoNothingClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * The requests of POP consumption as Apache's own client makes them, one by one: what its proxy and
 * its consumers are built on. A command per line on standard input, JSON lines on standard output.
 */
public final class PopScenarios {
    private static final long LIMIT_MS = 60_000;

    private final MQClientAPIExt api = new MQClientAPIExt(
        new ClientConfig(), new NettyClientConfig(), new DoNothingClientRemotingProcessor(null),
        null);

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        PopScenarios scenarios = new PopScenarios();
        scenarios.api.start();
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(JsonText.of(scenarios.answer(parse(line))));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, String> parse(String line) {
        Map<String, String> found = new LinkedHashMap<>();
        for (String pair : line.split("&")) {
            int equals = pair.indexOf('=');
            found.put(URLDecoder.decode(pair.substring(0, equals), StandardCharsets.UTF_8),
                URLDecoder.decode(pair.substring(equals + 1), StandardCharsets.UTF_8));
        }
        return found;
    }

    private Map<String, Object> answer(Map<String, String> command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", Long.parseLong(command.get("id")));
        try {
            answer.put("done", perform(command));
        } catch (Throwable failure) {
            failure.printStackTrace();
            Map<String, Object> described = new LinkedHashMap<>();
            described.put("type", failure.getClass().getSimpleName());
            described.put("message", String.valueOf(failure));
            answer.put("error", described);
        }
        return answer;
    }

    private Object perform(Map<String, String> command) throws Exception {
        switch (command.get("op")) {
            case "pop.pop": return pop(command);
            case "pop.ack": return ack(command);
            case "pop.batch_ack": return batchAck(command);
            case "pop.change": return change(command);
            case "pop.notify": return notify(command);
            default: throw new IllegalArgumentException("no such command");
        }
    }

    private Object pop(Map<String, String> command) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(command.get("group"));
        header.setTopic(command.get("topic"));
        header.setQueueId(Integer.parseInt(command.getOrDefault("queue", "-1")));
        header.setMaxMsgNums(Integer.parseInt(command.getOrDefault("count", "32")));
        header.setInvisibleTime(Long.parseLong(command.getOrDefault("invisible_ms", "60000")));
        header.setPollTime(Long.parseLong(command.getOrDefault("poll_ms", "0")));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp(command.getOrDefault("expression", "*"));
        header.setOrder(Boolean.parseBoolean(command.getOrDefault("order", "false")));
        header.setAttemptId(command.get("attempt"));
        PopResult result = api.popMessageAsync(
            command.get("address"), command.get("broker"), header, LIMIT_MS)
            .get(LIMIT_MS, TimeUnit.MILLISECONDS);
        List<Object> found = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                Map<String, Object> described = new LinkedHashMap<>();
                described.put("text", new String(message.getBody(), StandardCharsets.UTF_8));
                described.put("topic", message.getTopic());
                described.put("queue", message.getQueueId());
                described.put("offset", message.getQueueOffset());
                described.put("tries", message.getReconsumeTimes());
                described.put("handle", message.getProperty(MessageConst.PROPERTY_POP_CK));
                found.add(described);
            }
        }
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("status", result.getPopStatus().name());
        all.put("rest", result.getRestNum());
        all.put("messages", found);
        return all;
    }

    private Object ack(Map<String, String> command) throws Exception {
        String[] words = ExtraInfoUtil.split(command.get("handle"));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(command.get("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(
            words, command.get("topic"), command.get("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(words));
        header.setOffset(ExtraInfoUtil.getQueueOffset(words));
        header.setExtraInfo(command.get("handle"));
        return status(api.ackMessageAsync(command.get("address"), header, LIMIT_MS)
            .get(LIMIT_MS, TimeUnit.MILLISECONDS));
    }

    private Object batchAck(Map<String, String> command) throws Exception {
        return status(api.batchAckMessageAsync(
            command.get("address"), command.get("topic"), command.get("group"),
            Arrays.asList(command.get("handles").split(",")), LIMIT_MS)
            .get(LIMIT_MS, TimeUnit.MILLISECONDS));
    }

    private Object change(Map<String, String> command) throws Exception {
        String[] words = ExtraInfoUtil.split(command.get("handle"));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(command.get("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(
            words, command.get("topic"), command.get("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(words));
        header.setOffset(ExtraInfoUtil.getQueueOffset(words));
        header.setExtraInfo(command.get("handle"));
        header.setInvisibleTime(Long.parseLong(command.get("invisible_ms")));
        AckResult result = api.changeInvisibleTimeAsync(
            command.get("address"), command.get("broker"), header, LIMIT_MS)
            .get(LIMIT_MS, TimeUnit.MILLISECONDS);
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("status", status(result));
        described.put("handle", result.getExtraInfo());
        return described;
    }

    private Object notify(Map<String, String> command) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(command.get("group"));
        header.setTopic(command.get("topic"));
        header.setQueueId(-1);
        header.setPollTime(Long.parseLong(command.getOrDefault("poll_ms", "0")));
        header.setBornTime(System.currentTimeMillis());
        return api.notification(command.get("address"), header, LIMIT_MS)
            .get(LIMIT_MS, TimeUnit.MILLISECONDS);
    }

    private static String status(AckResult result) {
        return result.getStatus().name();
    }
}
