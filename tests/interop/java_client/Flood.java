import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Sends numbered messages until it is told to end; a failed number is not sent again. */
final class Flood extends Thread {
    private final DefaultMQProducer producer;
    private final String topic;
    private final int gapMs;
    private final List<Integer> acknowledged = new ArrayList<>();
    private final List<Integer> failed = new ArrayList<>();
    private volatile boolean ending;

    Flood(DefaultMQProducer producer, String topic, int gapMs) {
        this.producer = producer;
        this.topic = topic;
        this.gapMs = gapMs;
        setDaemon(true);
    }

    @Override
    public void run() {
        for (int number = 0; !ending; number++) {
            try {
                byte[] body = ("n" + number).getBytes(StandardCharsets.UTF_8);
                boolean stored = producer.send(new Message(topic, body)).getSendStatus()
                    == SendStatus.SEND_OK;
                (stored ? acknowledged : failed).add(number);
                Thread.sleep(gapMs);
            } catch (InterruptedException interrupted) {
                return;
            } catch (Exception failure) {
                failed.add(number);
                pauseAfterFailure();
            }
        }
    }

    private static void pauseAfterFailure() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    Map<String, Object> end() throws InterruptedException {
        ending = true;
        join();
        Map<String, Object> numbers = new LinkedHashMap<>();
        numbers.put("acknowledged", acknowledged);
        numbers.put("failed", failed);
        return numbers;
    }
}
