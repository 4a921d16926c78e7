"""The table's state: what is remembered between batches, and how it packs to bytes (MessagePack, with a version)."""

from __future__ import annotations

import msgspec

from tallystream.decoding import msgpack_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator.table.arithmetic.metric_types import Values
from tallystream_aggregator.table.arithmetic.partial_sums import Base, Held

STATE_VERSION = 1

MetricId = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""


LifeId = tuple[str, str, str]
"""(app, instance, life)"""


class Row(msgspec.Struct, array_like=True, gc=False):
    """One metric of one life: its newest values, and the (part, seq) of the snapshot that carried them.

    In the short form `values` is (sum of all runs, value of this run) and `seq` stays 0. `sketch` is that of a
    histogram or timer as JSON, None where its snapshot had none.
    """

    part: int
    seq: int
    values: Values
    sketch: bytes | None = None


class Block(msgspec.Struct, array_like=True, gc=False):
    """The counters of a part's newest snapshot, all of whose metrics were accepted: arrays in the machine's order.

    `metrics` has the numbers of the snapshot's metrics, 4 bytes each in its order, and `counts` the counts of the
    counters among them, 8 bytes each.
    """

    metrics: bytes
    counts: bytes


class Life(msgspec.Struct, array_like=True):
    """One life of an instance; `parts` maps part → highest seq; `rows` maps the metric's number → row.

    `blocks` maps part → the counters of its newest snapshot, which have no rows then.

    `heard_ms` is the clock at the last record that was applied; `keep_ms` the clock at the last record of any seq (or
    the ULID's time, where that is later), by which it retires and is forgotten; `partition` names whose clock it lives
    by. `limits` are those that it has reached. `places` maps part → the last offset of `partition` that the part's rows
    include: what a rebuild, which may meet a record again, must not apply twice.
    """

    instance: str
    app: str
    life: str
    partition: str
    heard_ms: int
    every_ms: int
    keep_ms: int
    final: bool = False
    living: bool = True
    parts: dict[int, int] = {}
    rows: dict[int, Row] = {}
    limits: list[str] = []
    places: dict[int, int] = {}
    blocks: dict[int, Block] = {}

    @property
    def deadline_ms(self) -> int:
        """The partition's time at which the life counts as silent: three intervals after its last record."""
        return self.heard_ms + 3 * self.every_ms

    def current(self, row: Row) -> bool:
        """Tell whether the row is of this moment: the life is living and its newest snapshot has the metric."""
        return self.living and row.seq == self.parts.get(row.part, 0)


class Retiring(msgspec.Struct, array_like=True):
    """A life that is being forgotten, in the list with the number `fold`."""

    fold: int
    life: Life


class Chunk(msgspec.Struct, array_like=True):
    """Lives on disk that are stored as one value: how many of them are still there.

    `kept` maps partition → the least `keep_ms` of those of its lives that can be forgotten.
    """

    lives: int
    kept: dict[str, int]


class State(msgspec.Struct, array_like=True):
    """A shard's table. `clocks` maps partition → running maximum of append times, `offsets` partition → last offset.

    `lives` maps instance → its lives in memory, oldest first. `disk` maps the key of each life on disk
    (table.disk) → the number of its chunk, `chunks` the number → what is known of it without
    reading it; `held` maps the metric's number → what the lives on disk add up to, `base` → what the forgotten ones do.

    `out_ms` is the time of the newest output; `seen` maps partition → the time (wall clock) of the last batch that had
    records of it; `judged` maps partition → the time by which its lives were last found silent; `due_ms` is a time
    (wall clock) before which no further life falls silent, 0 where none is living.

    `fold` counts the lists of lives to be forgotten. `leaving` are lives that the base does not have yet, `deleting`
    those that it has and whose rows are still on `metrics-table`; `lists` maps a list's number → all of its lives,
    `finished` are lists whose last row is deleted.
    `published` tells whether every row is on `metrics-table`; `forget` are keys of it that have to go.

    `stale`, `records`, `dead` and `forgotten` count, since the table began: records that were stale, all records, dead
    letters, and lives that were forgotten.

    `shard` is one of `shards` (table.shards). `included` maps partition → the last offset that a
    rebuilt shard includes: another one may have to read records again that it must not. `since` is the first epoch in
    which the table was cut so: what is older on `metrics-table` is from before. `before` has the number of shards and
    `since` of the cut before that, None where there was none.
    """

    version: int = STATE_VERSION
    metrics: list[MetricId] = []
    lives: dict[str, list[Life]] = {}
    disk: dict[bytes, int] = {}
    held: dict[int, Held] = {}
    base: dict[int, Base] = {}
    chunks: dict[int, Chunk] = {}
    last_chunk: int = 0
    clocks: dict[str, int] = {}
    offsets: dict[str, int] = {}
    overflowed: list[int] = []
    out_ms: int = 0
    seen: dict[str, int] = {}
    judged: dict[str, int] = {}
    due_ms: int = 0
    fold: int = 0
    leaving: list[Retiring] = []
    deleting: list[Retiring] = []
    lists: dict[int, list[LifeId]] = {}
    finished: list[int] = []
    published: bool = False
    forget: list[bytes] = []
    stale: int = 0
    records: int = 0
    dead: int = 0
    forgotten: int = 0
    shard: int = 0
    shards: int = 1
    included: dict[str, int] = {}
    since: int = 0
    before: tuple[int, int] | None = None


class _Version(msgspec.Struct, array_like=True):
    """The first field of every state, whatever its version: what follows is not looked at."""

    version: int


class StateVersionError(TallystreamError):
    """The state was written by another version of the table."""


_encoder = msgspec.msgpack.Encoder()
_decode = msgpack_decoder(State)
_decode_version = msgpack_decoder(_Version)


def pack(state: State) -> bytes:
    """Return the state as bytes."""
    return _encoder.encode(state)


def unpack(data: bytes) -> State:
    """Return the state in `data`.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    require_version(data)
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise damaged(error) from error


def require_version(data: bytes) -> None:
    """Require that what was stored has this version.

    Raises:
        StateVersionError: another version wrote it, or it is damaged.
    """
    version = version_of(data)
    if version != STATE_VERSION:
        raise StateVersionError(
            f"state: version {version!r} is not {STATE_VERSION}, this aggregator's; use the aggregator that wrote it."
        )


def version_of(data: bytes) -> int:
    """Return the version of what was stored.

    Raises:
        StateVersionError: it is damaged.
    """
    try:
        return _decode_version(data).version
    except msgspec.DecodeError as error:
        raise damaged(error) from error


def damaged(error: object) -> StateVersionError:
    """Return the error that says what is wrong with what was stored."""
    return StateVersionError(f"state: it is damaged ({error}); the checkpoint can't be used.")
