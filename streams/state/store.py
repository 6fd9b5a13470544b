"""The store of a pipeline's states, as users create it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from shlex import join
from typing import TYPE_CHECKING, Any, cast

from orjson import loads

from penstock.streams.base.database_url import file_of, is_postgresql, redacted
from penstock.streams.base.errors import BadArgument, BuildError, CannotOpen
from penstock.streams.base.extras import missing_extra, require
from penstock.streams.base.recorded import Call, recorded
from penstock.streams.base.validation import is_at_least, is_count, is_text
from penstock.streams.io.paths import is_path
from penstock.streams.state.backend import Backend, KeptStage, Moving
from penstock.streams.state.changes import is_over
from penstock.streams.state.codec import key_of, timers_in
from penstock.streams.state.commits import Commits
from penstock.streams.state.memory import Memory

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run
    from penstock.streams.state.jetstream.backend import JetStream
    from penstock.streams.state.kafka.backend import Kafka
    from penstock.streams.state.postgresql.backend import PostgreSQL
    from penstock.streams.state.rocks import Rocks
    from penstock.streams.state.sqlite import SQLite

__all__ = ["Store", "backend_at", "check_store"]


@recorded
class Store:
    """The states of one pipeline's stages, in files or in PostgreSQL, kept from run to run.

    `path` is a file that the first run creates, an SQLite database with a write-ahead log, or its
    URL (`sqlite:///shop.db`); or the URL of a folder for RocksDB (`rocks:///shop`), which takes
    less time than SQLite where there are more keys than fit into memory; or that of a PostgreSQL
    database, in which the first run creates tables; or `nats://host/stream` for a stream of NATS
    JetStream, which the first run creates on servers of version 2.12 or newer. Of that there is a
    copy in the folder `local`, which shortens the next start; by default in a temporary one. Other
    programs may read SQLite and PostgreSQL during a run, and `penstock state` reads all of them.
    Events that have ended are committed every `every` seconds, or when there are 1,000. With
    `durable` each commit waits until it is on the disk; without it a power failure, but not a
    crash, may undo the commits of the last moments in files; PostgreSQL always waits, and NATS as
    its servers are configured.

    With `kafka://BROKERS/TOPIC` each member of a group has the states of the partitions that it
    reads by `read_kafka(offsets=store)`: they are in a compacted topic, which the first run makes
    with as many partitions, and each member has a copy in a folder `local` of its own. The states
    and what is done are one transaction, with the results of `write_kafka(transactional=True)`.
    With `standby` each member keeps copies of the other partitions too, and takes one over at once.
    `config` has other settings of the client.

    With `shared` several runs use a store in PostgreSQL at a time, in the same way: each has the
    states of the partitions that it reads by `read_kafka(offsets=store)`, or as a worker of a
    pipeline on NATS.

    `cache` is the number of keys whose states stay in memory, besides those that wait for a commit.
    Raises BuildError for wrong options, and MissingExtra if the package for PostgreSQL, RocksDB,
    NATS or Kafka is not installed.
    """

    made_by: Call

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        local: str | os.PathLike[str] | None = None,
        every: float = 0.02,
        durable: bool = False,
        cache: int = 100_000,
        standby: bool = False,
        shared: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        where = os.fspath(path) if is_path(path) else ""
        if local is not None and not (is_path(local) and (_is_nats(where) or _is_kafka(where))):
            raise BuildError(
                f"Store(local={local!r}): a folder is needed, for the local copy of a store in "
                "NATS or in Kafka"
            )
        if local is None and _is_kafka(where):
            raise BuildError(
                f"Store({where!r}): give a folder for the copy of the states by local=, one for "
                "each member of the group. It may be lost; then they are read from Kafka again"
            )
        if (config is not None or standby) and not _is_kafka(where):
            raise BuildError("Store(standby=, config=): these are for a store in Kafka")
        if not isinstance(cast(Any, standby), bool):
            raise BuildError(f"Store(standby={standby!r}): True or False is needed")
        folder = None if local is None else os.fspath(local)
        if shared and not is_postgresql(where):
            raise BuildError(
                f"Store({redacted(where)!r}, shared=True): of these only a store in PostgreSQL is "
                "shared; give a URL such as postgresql://user@host/name"
            )
        others = partial(backend_at, standby=standby, config=config, shared=shared)
        open_ = partial(others, where, durable=durable, local=folder)
        self._set(open_, redacted(where), every, cache)
        self._is_stored = True
        self._where = where
        self._local: str | None = folder
        # What is wrong with it is reported when the pipeline is built.
        self._open()

    @classmethod
    def memory(cls, *, every: float = 0.02, cache: int = 100_000) -> Store:
        """A store in memory, for tests. It lasts as long as this object: a run finds the states
        that earlier runs have committed, also after a crash."""
        memory = Memory()
        store = cls.of(memory, "memory", every=every, cache=cache)
        store.made_by = Call(cls.memory, (), {"every": every, "cache": cache})
        return store

    @classmethod
    def of(cls, backend: Backend, name: str, *, every: float = 0.02, cache: int = 100_000) -> Store:
        """A store with your own backend, for one run at a time."""
        store = cls.__new__(cls)
        store._set(lambda: backend, name, every, cache)
        return store

    def _set(self, open_: Callable[[], Backend], name: str, every: float, cache: int) -> None:
        if not (is_at_least(every, 0) and is_count(cache)):
            raise BuildError(
                f"Store(every={every!r}, cache={cache!r}): every= is a number of seconds, at "
                "least 0, and cache= a whole number of at least 1"
            )
        self.name = name
        self.every = every
        self.cache = cache
        self._open = open_
        self._is_stored = False
        self._where = ""
        self._local = None
        self._used: tuple[Run, Commits, Backend] | None = None
        self._stages: list[KeptStage] = []

    def __repr__(self) -> str:
        return f"Store({self.name!r})"

    @property
    def database(self) -> tuple[Any, ...] | None:
        """The database of its backend, if it can write rows of sinks there."""
        return (self._open() if self._used is None else self._used[2]).database

    @property
    def moves(self) -> bool:
        """Whether several runs use it at a time, each with the states of the partitions that it
        has."""
        return isinstance(self._open() if self._used is None else self._used[2], Moving)

    @property
    def can_move(self) -> bool:
        """Whether its states can move with the partitions of a pipeline on many machines."""
        # A commit to Kafka needs a member of a group.
        return _is_nats(self._where) or (self.moves and not _is_kafka(self._where))

    # What stages and sources call.

    def marks_in(self, run: Run) -> Commits:
        """The commits of this store in a run. Raises CannotOpen."""
        run = run.root
        if self._used is not None and self._used[0] is run:
            return self._used[1]
        if self._used is not None and self._used[0].is_open and self._used[2].in_thread:
            raise CannotOpen(
                f"{self!r} is used by another run of this program: let one run at a time use it, "
                "or give each a store of its own"
            )
        moves = run.overrides.moves_states and _is_nats(self._where)
        backend = moving_at(self._where, self._local) if moves else self._open()
        backend.open()
        commits = Commits(run, backend, self.every, repr(self))
        run.stores.append(commits)
        self._used = run, commits, backend
        self._stages = []
        run.attachments.then(self._refuse_others)
        run.on_close(self._close)
        return commits

    def declare(self, stage: KeptStage) -> Backend:
        """The backend, for a stage of this run. Raises BuildError if the stage cannot continue with
        the states of earlier runs."""
        assert self._used is not None
        backend, name = self._used[2], stage.name
        if any(other.name == name for other in self._stages):
            raise BuildError(
                f"Two stages with state in {self!r} have the name {name!r}: give one of them "
                "another by name="
            )
        self._stages.append(stage)
        before = next((one for one in backend.stages() if one.name == name), stage)
        if before.by != stage.by and _has_states(backend, name):
            raise BuildError(
                f"{self!r} has states of the stage {name!r} by {before.by}, and now it keeps them "
                f"by {stage.by}: to begin anew with it, {self._how_to_delete(name)}"
            )
        if before.version > stage.version and _has_states(backend, name, stage.version):
            raise BuildError(
                f"{self!r} has states of the stage {name!r} of version {before.version}, and the "
                f"stage has version={stage.version}: run the program that wrote them; or, to begin "
                f"anew with it, {self._how_to_delete(name)}"
            )
        backend.declare([stage])
        return backend

    def _refuse_others(self) -> None:
        """Raise BuildError for states of a stage that is not in this run. All stages are known."""
        assert self._used is not None
        names = [stage.name for stage in self._stages]
        others = [one.name for one in self._used[2].stages() if one.name not in names]
        gone = [name for name in others if _has_states(self._used[2], name)]
        if gone:
            raise BuildError(
                f"{self!r} has states of the stage {gone[0]!r}, which the pipeline does not have: "
                f"its stages with state are {', '.join(map(repr, names)) or 'none'}. If they are "
                "those of another pipeline, use another store, since each has one of its own. If "
                "the stage has another name now, give it the old one by name=. If it is not wanted "
                f"any more, {self._how_to_delete(gone[0])}"
            )

    def _how_to_delete(self, stage: str) -> str:
        if self._is_stored:
            words = ("penstock", "state", "drop", self.name, "--stage", stage)
            return f"delete its states: {join(words)}"
        return f"delete its states by forget({stage!r}) of the backend"

    async def _close(self) -> None:
        if self._used is not None:
            await self._used[1].reads.ended()
            self._used[2].close()
            self._used = None

    # What others call.

    def read(self, stage: str, key: Any) -> Any:
        """The committed state of a key, as plain values of JSON; None if there is none, or if its
        ttl is over.

        For the program that runs the pipeline, such as a web handler; another program reads the
        database. With PostgreSQL it waits for the answer, so an async handler calls it in a thread:
        `await asyncio.to_thread(store.read, stage, key)`. Raises CannotOpen while no run uses the
        store, also just after `start()`, and BadArgument for a name that no stage has.
        """
        if self._used is None:
            raise CannotOpen(
                f"No run uses {self!r} now: read() works while a pipeline with it runs, from the "
                "next iteration of the loop after start() on"
            )
        names = [one.name for one in self._stages]
        if stage not in names:
            raise BadArgument(
                f"{self!r} has no stage {stage!r}: its stages are {', '.join(map(repr, names))}"
            )
        run, _, backend = self._used
        for row in backend.read(stage, [key_of(key)]):
            if not is_over(timers_in(row.timers), run.wall()):
                return loads(row.state)
        return None


def backend_at(
    path: str,
    *,
    durable: bool = False,
    local: str | None = None,
    standby: bool = False,
    shared: bool = False,
    config: Mapping[str, Any] | None = None,
) -> SQLite | PostgreSQL | Rocks | JetStream | Kafka:
    """The backend for a path or a URL. Raises BuildError for what is neither, and MissingExtra."""
    # Imported here: few pipelines need any of them.
    if _is_nats(path):
        from penstock.streams.state.jetstream.backend import JetStream

        return JetStream(path, local)
    if _is_kafka(path):
        return _kafka_at(path, local, config, standby=standby)
    if path.lower().startswith("rocks:"):
        try:
            from penstock.streams.state.rocks import Rocks
        except ImportError as error:
            raise missing_extra(f"A store in RocksDB needs rocksdict ({error})", "rocks") from error
        return Rocks(file_of(path, "rocks"), durable=durable)
    if not is_postgresql(path):
        from penstock.streams.state.sqlite import SQLite

        is_url = path.lower().startswith("sqlite:")
        if not path or ("://" in path and not is_url):
            raise BuildError(
                f"No store can be at {redacted(path)!r}: give the path of a file, or a URL such as "
                '"sqlite:///shop.db", "rocks:///shop", "postgresql://user@host/name", '
                '"nats://host/stream" or "kafka://host:9092/topic"'
            )
        return SQLite(file_of(path) if is_url else path, durable=durable)
    try:
        from penstock.streams.state.postgresql.backend import PostgreSQL
    except ImportError as error:
        raise missing_extra(f"A store in PostgreSQL needs psycopg ({error})", "postgres") from error
    if shared:
        from penstock.streams.state.postgresql.shared import SharedPostgreSQL

        return SharedPostgreSQL(path)
    return PostgreSQL(path)


def moving_at(url: str, local: str | None) -> Moving:
    """The backend for the URL of a store whose states move with partitions."""
    from penstock.streams.state.jetstream.moving import MovingJetStream

    return MovingJetStream(url, local)


def _is_nats(path: str) -> bool:
    return path.partition("://")[0].lower() in ("nats", "tls") and "://" in path


def _is_kafka(path: str) -> bool:
    return path.lower().startswith("kafka://")


def _kafka_at(
    path: str, local: str | None, config: Mapping[str, Any] | None, *, standby: bool
) -> Kafka:
    servers, _, topic = path.partition("://")[2].rpartition("/")
    if not servers or not topic:
        raise BuildError(
            f'No store can be at {path!r}: give "kafka://BROKERS/TOPIC", as in '
            '"kafka://localhost:9092/counts"; the first run makes the topic'
        )
    require("confluent_kafka", "A store in Kafka needs confluent-kafka", "kafka")
    from penstock.streams.state.kafka.backend import Kafka

    return Kafka(servers, topic, local, config, standby=standby)


def _has_states(backend: Backend, stage: str, version: int = 0) -> bool:
    """Whether a stage has states of a newer version than this. A run that ended before its first
    commit has declared its stages, and has no states."""
    return any(row.version > version for row in backend.scan(stage))


def check_store(operator: str, store: Any, name: Any) -> None:
    """Raises BuildError unless the options of an operator are a Store and a name, or None."""
    if store is not None and not isinstance(store, Store):
        raise BuildError(f"{operator}(store={store!r}): give a Store(path)")
    if name is not None and not is_text(name):
        raise BuildError(f"{operator}(name={name!r}): a text is needed")
