import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The kata in Java, by hand, on Reactor and on RxJava:
 *
 * <pre>java -cp ... Kata (by_hand | reactor | rxjava) (plain | yielding) FILE LATER</pre>
 *
 * FILE is of {@code python -m benchmarks.workload}; it is read anew before each of the 1 + LATER
 * runs. All works on one thread, the loop, as in Python: {@code cpu_seconds} and {@code later} are
 * its processor time, and {@code process_seconds} and {@code later_process} that of all threads,
 * with those that compile and collect. What the libraries cannot do: turns; and a {@code flatMap}
 * over fewer groups than there are waits for ever, so clients share 64 groups.
 */
final class Kata {
    static final int LIMIT = 64;

    record Event(String uuid, int clientId) {}

    record Result(String uuid, int clientId) {}

    record Stamped(long created, Event event) {}

    interface Handler {
        CompletableFuture<Result> handle(Event event);
    }

    /** The handler is null for the plain one, which is {@link #project}. */
    interface Pipe {
        CompletableFuture<?> run(List<Event> events, Handler handler, Steps steps);
    }

    private static final Map<String, Pipe> PIPES =
            Map.of("by_hand", ByHand::run, "reactor", OnReactor::run, "rxjava", OnRxJava::run);

    static Result project(Event event) {
        return new Result(event.uuid(), event.clientId());
    }

    private static List<Event> read(Path file) throws Exception {
        List<Event> events = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            // {"uuid":"…","client_id":1000,"created":1700000000.0}
            String[] parts = line.split("[:,]");
            String uuid = parts[1].substring(1, parts[1].length() - 1);
            events.add(new Event(uuid, Integer.parseInt(parts[3])));
        }
        return events;
    }

    private record Run(double cpu, double process, double wall, int events, Steps steps) {}

    private static Run run(Pipe pipe, Handler handler, Path file, ExecutorService loop)
            throws Exception {
        var system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        var threads = ManagementFactory.getThreadMXBean();
        List<Event> events = read(file);
        Steps steps = new Steps();
        System.gc();
        long id = loop.submit(() -> Thread.currentThread().getId()).get();
        long wall = System.nanoTime();
        long process = system.getProcessCpuTime();
        long cpu = threads.getThreadCpuTime(id);
        CompletableFuture.supplyAsync(() -> pipe.run(events, handler, steps), loop)
                .thenCompose(ended -> ended)
                .get();
        cpu = threads.getThreadCpuTime(id) - cpu;
        process = system.getProcessCpuTime() - process;
        wall = System.nanoTime() - wall;
        return new Run(cpu / 1e9, process / 1e9, wall / 1e9, events.size(), steps);
    }

    public static void main(String[] words) throws Exception {
        Pipe pipe = PIPES.get(words[0]);
        ExecutorService loop = Executors.newSingleThreadExecutor();
        Handler yielding = event -> CompletableFuture.supplyAsync(() -> project(event), loop);
        Handler handler = words[1].equals("plain") ? null : yielding;
        List<Run> runs = new ArrayList<>();
        for (int round = 0; round <= Integer.parseInt(words[3]); round++) {
            runs.add(run(pipe, handler, Path.of(words[2]), loop));
        }
        loop.shutdown();
        Run first = runs.remove(0);
        System.out.printf(
                """
                {"cpu_seconds": %f, "process_seconds": %f, "wall_seconds": %f, "events": %d, %s, \
                "later": %s, "later_process": %s}
                """,
                first.cpu,
                first.process,
                first.wall,
                first.events,
                first.steps.outcome(),
                runs.stream().map(Run::cpu).toList(),
                runs.stream().map(Run::process).toList());
    }
}
