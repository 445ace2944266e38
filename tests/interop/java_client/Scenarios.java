import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Drives real RocketMQ clients: a command per line on standard input, JSON lines on standard output.
 *
 * <p>A command is a form-encoded line with "id" and "op"; its answer has the same "id" and "done" or
 * "error". Commands run side by side, so answers come in any order. What push consumers receive
 * comes in between as lines with "event". Owns standard output: whatever a client library prints
 * goes to standard error. Ends with its standard input.
 */
public final class Scenarios {
    private final PrintStream out;
    private final ExecutorService workers = Executors.newCachedThreadPool();
    private final Producing producing;
    private final Pushing pushing;
    private final Pulling pulling;
    private final LitePulling litePulling;
    private final Administering administering;
    private final Loading loading;
    private final Transacting transacting;
    private final Featuring featuring = new Featuring();

    private Scenarios(PrintStream out) {
        this.out = out;
        pushing = new Pushing(this::emit);
        producing = new Producing(pushing);
        pushing.replyThrough(producing);
        transacting = new Transacting(this::emit);
        pulling = new Pulling();
        litePulling = new LitePulling();
        administering = new Administering(producing);
        loading = new Loading(producing);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(
            new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8.name());
        System.setOut(System.err);
        new Scenarios(out).serve(
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        // Nobody is left to read an answer, and some client threads are not daemons.
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader lines) throws IOException {
        Map<String, Object> hello = new LinkedHashMap<>();
        hello.put("event", "ready");
        hello.put("pid", ProcessHandle.current().pid());
        emit(hello);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Command command = Command.parse(line);
            workers.execute(() -> emit(answer(command)));
        }
    }

    private Map<String, Object> answer(Command command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.number("id"));
        try {
            answer.put("done", perform(command));
        } catch (Throwable failure) {
            failure.printStackTrace();
            answer.put("error", Described.failure(failure));
        }
        return answer;
    }

    private Object perform(Command command) throws Exception {
        String op = command.text("op");
        String room = op.substring(0, op.indexOf('.'));
        switch (room) {
            case "producer": return producing.perform(op, command);
            case "transaction": return transacting.perform(op, command);
            case "push": return pushing.perform(op, command);
            case "pull": return pulling.perform(op, command);
            case "lite": return litePulling.perform(op, command);
            case "load": return loading.perform(op, command);
            case "feature": return featuring.perform(op, command);
            case "admin": return administering.perform(op, command);
            default: throw new IllegalArgumentException("no such command: " + op);
        }
    }

    private void emit(Map<String, Object> line) {
        String text = JsonText.of(line);
        synchronized (out) {
            out.println(text);
            out.flush();
        }
    }
}
