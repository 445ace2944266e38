import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends some messages and consumes them, signed if there is a key, encrypted if -Dtls.enable says
 * so. Arguments: name server, topic, group, count, access key, secret key. One line per event. The
 * first message, which is the first that a broker hears of the producer, is a large one.
 */
public final class SecureClient {
    private static final long WAIT_S = 90;
    private static final int LARGE = 1 << 20;

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0];
        String topic = arguments[1];
        String group = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        String key = arguments.length > 4 ? arguments[4] : "";
        String secret = arguments.length > 5 ? arguments[5] : "";
        boolean sent = send(nameServer, topic, count, hook(key, secret));
        if (sent) {
            consume(nameServer, topic, group, count, hook(key, secret));
        }
        System.exit(0);
    }

    private static RPCHook hook(String key, String secret) {
        return key.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(key, secret));
    }

    private static boolean send(String nameServer, String topic, int count, RPCHook hook)
            throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("JavaProducers", hook);
        producer.setNamesrvAddr(nameServer);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(30_000);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        try {
            for (int number = 0; number < count; number++) {
                String padding = number == 0 ? new String(new char[LARGE]).replace('\0', ' ') : "";
                byte[] body =
                        ("body " + number + " é" + padding).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(topic, "TagA", "key" + number, body);
                message.putUserProperty("größe", "\u4e2d = 1");
                SendResult result = producer.send(message);
                System.out.println("sent " + result.getSendStatus());
            }
            return true;
        } catch (Exception failure) {
            System.out.println("failed " + String.valueOf(failure).replace('\n', ' '));
            return false;
        } finally {
            producer.shutdown();
        }
    }

    private static void consume(
            String nameServer, String topic, String group, int count, RPCHook hook)
            throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                System.out.println("received " + body.trim());
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean complete = left.await(WAIT_S, TimeUnit.SECONDS);
        System.out.println(complete ? "complete" : "incomplete");
        consumer.shutdown();
    }
}
