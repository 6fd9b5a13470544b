import java.util.List;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Flux;
import reactor.core.publisher.GroupedFlux;
import reactor.core.publisher.Mono;

/** The kata on Reactor. */
final class OnReactor {
    private OnReactor() {}

    static CompletableFuture<?> run(List<Kata.Event> events, Kata.Handler handler, Steps steps) {
        Flux<GroupedFlux<Integer, Kata.Stamped>> clients =
                Flux.fromIterable(events)
                        .map(event -> new Kata.Stamped(System.nanoTime(), event))
                        .filter(it -> steps.isNew(it.event().uuid(), it.created()))
                        .groupBy(it -> it.event().clientId() % Kata.LIMIT);
        return clients.flatMap(client -> each(client, handler, steps), Kata.LIMIT).then().toFuture();
    }

    private static Flux<Kata.Result> each(
            Flux<Kata.Stamped> client, Kata.Handler handler, Steps steps) {
        return handler == null
                ? client.map(stamped -> steps.projected(stamped))
                : client.concatMap(stamped -> Mono.fromFuture(steps.handled(stamped, handler)));
    }
}
