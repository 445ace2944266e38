import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.store.*;

/**
 * Drives one real RocketMQ store from JSON lines: a command per line on standard input; on standard
 * output zero or more lines with "row", then exactly one with "done" or "error".
 *
 * <p>Commands: open, put, batch, flush, await_dispatch, sleep, dump, query, time, bench, close, kill.
 * Owns standard output: everything the store prints goes to standard error. Never retries.
 */
public final class StoreDriver {
    private final PrintStream out;
    private PeerStore peer;

    private StoreDriver(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        new StoreDriver(out).serve(
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        out.flush();
        // Some store threads are not daemons; after a clean close nothing they do matters.
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader lines) throws IOException {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                JSONObject command = JSON.parseObject(line, Feature.OrderedField);
                Map<String, Object> done = new LinkedHashMap<>();
                perform(command, done);
                done.put("done", command.getString("op"));
                emit(done);
            } catch (Throwable failure) {
                failure.printStackTrace();
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("error", String.valueOf(failure));
                emit(answer);
            }
            out.flush();
        }
    }

    private void perform(JSONObject command, Map<String, Object> done) throws Exception {
        switch (command.getString("op")) {
            case "open" -> open(command, done);
            case "put" -> put(command, done);
            case "batch" -> report(opened().store.putMessages(ScriptMessage.batch(command)), done);
            case "flush" -> done.put("flushed_position", opened().store.flush());
            case "await_dispatch" -> opened().awaitDispatch();
            case "sleep" -> Thread.sleep(command.getLongValue("ms"));
            case "dump" -> dump(done);
            case "query" -> query(command);
            case "time" -> done.put("queue_offset", opened().store.getOffsetInQueueByTime(
                command.getString("topic"), command.getIntValue("queue_id"),
                command.getLongValue("timestamp_ms")));
            case "bench" -> bench(command);
            case "close" -> close();
            // No shutdown hook, no flush: what a killed broker process leaves behind.
            case "kill" -> Runtime.getRuntime().halt(137);
            default -> throw new IllegalArgumentException("unknown op " + command.getString("op"));
        }
    }

    private void open(JSONObject command, Map<String, Object> done) throws Exception {
        if (peer != null) {
            throw new IllegalStateException("a store is already open");
        }
        JSONObject config = command.getJSONObject("config");
        peer = PeerStore.open(command.getString("root"), config == null ? new JSONObject() : config);
        peer.awaitDispatch();
        positions(done);
    }

    private void close() throws Exception {
        PeerStore closing = opened();
        peer = null;
        closing.close();
    }

    private void put(JSONObject command, Map<String, Object> done) throws Exception {
        report(
            opened().store.putMessage(ScriptMessage.single(command, opened().storeRewritesDelay)), done);
    }

    private static void report(PutMessageResult result, Map<String, Object> done) {
        done.put("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            done.put("position", append.getWroteOffset());
            done.put("wrote_bytes", append.getWroteBytes());
            done.put("queue_offset", append.getLogicsOffset());
            done.put("store_timestamp_ms", append.getStoreTimestamp());
            done.put("message_id", append.getMsgId());
            done.put("message_count", append.getMsgNum());
        }
    }

    private void dump(Map<String, Object> done) throws Exception {
        opened().awaitDispatch();
        StoreDump.emit(opened().store, this::emit);
        positions(done);
    }

    private void positions(Map<String, Object> done) {
        done.put("min_position", peer.store.getMinPhyOffset());
        done.put("max_position", peer.store.getMaxPhyOffset());
    }

    private void query(JSONObject command) throws Exception {
        opened().awaitDispatch();
        Long end = command.getLong("end_ms");
        QueryMessageResult result = opened().store.queryMessage(
            command.getString("topic"), command.getString("key"), command.getIntValue("count_max"),
            command.getLongValue("begin_ms"), end == null ? Long.MAX_VALUE : end);
        for (ByteBuffer record : result.getMessageBufferList()) {
            emit(StoreDump.messageRow(record));
        }
        result.release();
    }

    private void bench(JSONObject command) throws Exception {
        AppendBench bench = new AppendBench(
            opened(), command.getIntValue("body_size"), command.getIntValue("batch_count"));
        bench.round(command.getLongValue("warmup_count"));
        for (int round = 0; round < command.getIntValue("rounds"); round++) {
            emit(bench.round(command.getLongValue("message_count")));
        }
    }

    private PeerStore opened() {
        if (peer == null) {
            throw new IllegalStateException("no store is open");
        }
        return peer;
    }

    private void emit(Map<String, Object> row) {
        // Two calls: println of a joined string would copy every body once more.
        out.print(JSON.toJSONString(row, SerializerFeature.WriteMapNullValue));
        out.print('\n');
    }
}
