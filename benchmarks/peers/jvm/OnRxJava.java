import io.reactivex.rxjava3.core.Flowable;
import io.reactivex.rxjava3.core.Single;
import io.reactivex.rxjava3.flowables.GroupedFlowable;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The kata on RxJava. */
final class OnRxJava {
    private OnRxJava() {}

    static CompletableFuture<?> run(List<Kata.Event> events, Kata.Handler handler, Steps steps) {
        Flowable<GroupedFlowable<Integer, Kata.Stamped>> clients =
                Flowable.fromIterable(events)
                        .map(event -> new Kata.Stamped(System.nanoTime(), event))
                        .filter(it -> steps.isNew(it.event().uuid(), it.created()))
                        .groupBy(it -> it.event().clientId() % Kata.LIMIT);
        return clients.flatMap(client -> each(client, handler, steps), Kata.LIMIT)
                .ignoreElements()
                .<Void>toCompletionStage(null)
                .toCompletableFuture();
    }

    private static Flowable<Kata.Result> each(
            Flowable<Kata.Stamped> client, Kata.Handler handler, Steps steps) {
        return handler == null
                ? client.map(stamped -> steps.projected(stamped))
                : client.concatMapSingle(
                        stamped -> Single.fromCompletionStage(steps.handled(stamped, handler)));
    }
}
