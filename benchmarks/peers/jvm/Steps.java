import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** What each pipe is made of: the window of duplicates, and the times. */
final class Steps {
    private static final long WINDOW = 10_000_000_000L;

    /** Counts of whole microseconds, to three digits, as an HDR histogram has them. */
    private static final class Histogram {
        private final int[] counts = new int[24 << 10];
        private int count;

        void record(long nanoseconds) {
            int time = (int) (nanoseconds / 1000);
            int shift = Math.max(0, 21 - Integer.numberOfLeadingZeros(time));
            counts[(shift << 10) + (time >>> shift)]++;
            count++;
        }

        int percentile(double share) {
            int left = (int) Math.ceil(count * share);
            int index = -1;
            while (left > 0) {
                left -= counts[++index];
            }
            int shift = Math.max(0, (index >> 10) - 1);
            return index - (shift << 10) << shift;
        }

        @Override
        public String toString() {
            return "{\"p50\": %d, \"p99\": %d}".formatted(percentile(0.5), percentile(0.99));
        }
    }

    private final Map<String, Long> seen = new LinkedHashMap<>();
    private final Histogram waiting = new Histogram();
    private final Histogram service = new Histogram();
    private final Histogram total = new Histogram();
    private long sweep = Long.MIN_VALUE;
    private int duplicates;

    boolean isNew(String uuid, long now) {
        if (now >= sweep) {
            forget(now);
        }
        Long first = seen.get(uuid);
        if (first != null) {
            if (now - first < WINDOW) {
                duplicates++;
                return false;
            }
            seen.remove(uuid);
        }
        seen.put(uuid, now);
        return true;
    }

    private void forget(long now) {
        sweep = now + WINDOW / 100;
        var times = seen.values().iterator();
        while (times.hasNext() && now - times.next() >= WINDOW) {
            times.remove();
        }
    }

    /** The plain handler, timed. */
    Kata.Result projected(Kata.Stamped stamped) {
        long started = System.nanoTime();
        Kata.Result result = Kata.project(stamped.event());
        record(stamped.created(), started, System.nanoTime());
        return result;
    }

    /** A handler that awaits, timed. */
    CompletableFuture<Kata.Result> handled(Kata.Stamped stamped, Kata.Handler handler) {
        long started = System.nanoTime();
        return handler.handle(stamped.event())
                .thenApply(
                        result -> {
                            record(stamped.created(), started, System.nanoTime());
                            return result;
                        });
    }

    void record(long created, long started, long ended) {
        waiting.record(started - created);
        service.record(ended - started);
        total.record(ended - created);
    }

    String outcome() {
        return "\"finished\": %d, \"duplicates\": %d, \"waiting\": %s, \"service\": %s"
                .formatted(total.count, duplicates, waiting, service);
    }
}
