import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A queue for each client, a rotation of the clients that are ready, and at most 64 at work. */
final class ByHand {
    private static final int HALF = 512;

    private final List<Kata.Event> events;
    private final Kata.Handler handler;
    private final Steps steps;
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private final Map<Integer, ArrayDeque<Kata.Stamped>> queues = new HashMap<>();
    private final ArrayDeque<ArrayDeque<Kata.Stamped>> ready = new ArrayDeque<>();
    private int next;
    private int waiting;
    private int working;

    private ByHand(List<Kata.Event> events, Kata.Handler handler, Steps steps) {
        this.events = events;
        this.handler = handler;
        this.steps = steps;
    }

    static CompletableFuture<?> run(List<Kata.Event> events, Kata.Handler handler, Steps steps) {
        ByHand kata = new ByHand(events, handler, steps);
        kata.work();
        return kata.ended;
    }

    private void work() {
        while (working < Kata.LIMIT) {
            if (waiting <= HALF && next < events.size()) {
                admit(events.subList(next, Math.min(next + HALF, events.size())));
            }
            ArrayDeque<Kata.Stamped> queue = ready.poll();
            if (queue != null) {
                start(queue);
            } else if (next == events.size()) {
                break;
            }
        }
        if (working == 0) {
            ended.complete(null);
        }
    }

    private void admit(List<Kata.Event> chunk) {
        next += chunk.size();
        long now = System.nanoTime();
        for (Kata.Event event : chunk) {
            if (steps.isNew(event.uuid(), now)) {
                ArrayDeque<Kata.Stamped> queue = queues.get(event.clientId());
                if (queue == null) {
                    queue = new ArrayDeque<>();
                    queues.put(event.clientId(), queue);
                    ready.add(queue);
                }
                queue.add(new Kata.Stamped(now, event));
                waiting++;
            }
        }
    }

    private void start(ArrayDeque<Kata.Stamped> queue) {
        waiting--;
        long started = System.nanoTime();
        if (handler == null) {
            Kata.project(queue.peek().event());
            finish(queue, started);
            return;
        }
        working++;
        handler.handle(queue.peek().event())
                .thenRun(
                        () -> {
                            working--;
                            finish(queue, started);
                            work();
                        });
    }

    private void finish(ArrayDeque<Kata.Stamped> queue, long started) {
        Kata.Stamped head = queue.poll();
        steps.record(head.created(), started, System.nanoTime());
        if (queue.isEmpty()) {
            queues.remove(head.event().clientId());
        } else {
            ready.add(queue);
        }
    }
}
