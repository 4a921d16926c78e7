"""The world around simulated processes: what happens to the topics, the clocks, the processes and the checkpoint.

`World` starts processes that run the same code, kills all of them at times, appends records, and lets readers read.
`Events` says what may happen, and how often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from support.simulation.broker import Action, SimulatedCluster
from support.simulation.checkpoints import Checkpoint
from support.simulation.client import SimulatedBroker
from support.simulation.scheduler import Faults, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from support.simulation.choices import Choices
    from support.simulation.processes import Process
    from support.simulation.readers import CommittedReader
    from tallystream_aggregator.stream.broker import Place

HOUR_MS = 3_600_000
JUMPS_MS = (0, 1_000, -1_000, HOUR_MS, -HOUR_MS, 72 * HOUR_MS, -72 * HOUR_MS)
"""How wrong a clock may be."""

FAULTS = Faults(kill_before=20, kill_after=20, lose_answer=20, fail=20, late=20, freeze=20)


class Events(NamedTuple):
    """How likely each event is in comparison with the others. A request of a process has 100, a marker 40."""

    append: int = 60
    """A record is appended to one of the inputs."""
    start: int = 40
    """A process is started, as none is there."""
    take_over: int = 3
    """Another process is started, up to the number of processes."""
    kill_all: int = 0
    """All processes end."""
    pass_time: int = 0
    """A minute, an hour or a day passes."""
    jump: int = 0
    """A partition gets a leader with another clock."""
    add_partition: int = 0
    """An input gets another partition, up to five."""
    expire: int = 0
    """The coordinator aborts an open transaction, as if its timeout had passed."""
    compact: int = 0
    """A part of a compacted topic is compacted."""
    delete: int = 0
    """Records of an input are deleted up to the position that `World.deletable` allows."""
    lose: int = 0
    """The checkpoint is lost."""
    put_back: int = 0
    """An old copy of the checkpoint is put back."""
    damage: int = 0
    """An entry of the checkpoint is damaged."""


class World:
    """A cluster, a checkpoint, readers, and processes that run `code`. Use it in a `with` block."""

    def __init__(
        self,
        choices: Choices,
        code: Callable[[Process, SimulatedBroker, Checkpoint], object],
        record: Callable[[World], tuple[bytes | None, bytes | None]],
        *,
        inputs: Sequence[str],
        compacted: Sequence[str] = (),
        processes: int = 2,
        faults: Faults = FAULTS,
        events: Events = Events(),  # noqa: B008 (a tuple)
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        self.cluster, self.checkpoint = SimulatedCluster(), Checkpoint()
        self.scheduler = Scheduler(choices, self.cluster, faults=faults, expected=expected)
        self.scheduler.actions = self._actions
        self.readers: list[CommittedReader] = []
        self.deletable: Callable[[], dict[Place, int]] = dict
        """The positions up to which the inputs are not needed any more."""
        self._code, self._record, self._inputs, self._compacted = code, record, inputs, compacted
        self._processes, self._started = processes, 0
        self._set(events)

    def __enter__(self) -> Self:
        self.scheduler.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.scheduler.__exit__(kind, error, trace)

    def choose(self, n: int, what: str) -> int:
        """Return a number from 0 to n - 1."""
        return self.scheduler.choose(n, what)

    def start(self) -> Process:
        """Start a process."""
        self._started += 1
        wrong = JUMPS_MS[self.choose(len(JUMPS_MS), "wall clock")]
        return self.scheduler.spawn(f"p{self._started}", self._main, wall_offset_ms=wrong)

    def _main(self, process: Process) -> object:
        return self._code(process, SimulatedBroker(process, self.cluster, self._inputs.__contains__), self.checkpoint)

    def settle(self, steps: int, until: Callable[[], bool]) -> None:
        """Go on without faults and events until `until`, end all processes, and let the readers read everything.

        Raises:
            AssertionError: that takes too many steps.
        """
        self._set(Events(append=0, take_over=0))
        if not self.scheduler.settle(steps, until):
            raise AssertionError(f"not done after {steps} steps without faults: {list(self.scheduler.log)[-50:]}")
        self.kill_all()
        self.cluster.close_transactions()
        for reader in self.readers:
            reader.finish()

    def _actions(self) -> Iterator[Action]:
        events, cluster, checkpoint = self._events, self.cluster, self.checkpoint
        if not self.scheduler.processes:
            yield Action(events.start, "start", self.start)
        elif len(self.scheduler.processes) < self._processes:
            yield Action(events.take_over, "take over", self.start)
        for reader in self.readers:
            yield from reader.actions()
        yield from self._always
        if events.expire:
            for transaction in cluster.open_transactions():
                name = transaction.transactional_id
                yield Action(events.expire, f"{name} expires", lambda n=name: cluster.expire(n))  # type: ignore[misc]
        if checkpoint.batches and events.lose + events.put_back + events.damage:
            number = len(checkpoint.batches)
            yield Action(events.lose, "lose the checkpoint", checkpoint.lose)
            put_back = lambda: checkpoint.put_back(self.choose(number, "batches of the copy"))  # noqa: E731
            yield Action(events.put_back, "put an old checkpoint back", put_back)
            damage = lambda: checkpoint.damage(self.choose(100, "entry"), self.choose(100, "bytes"))  # noqa: E731
            yield Action(events.damage, "damage the checkpoint", damage)

    def _set(self, events: Events) -> None:
        self._events = events
        always = [
            Action(events.append, "append", self.append),
            Action(events.pass_time, "time passes", self._pass_time),
            Action(events.jump, "clock jumps", self._jump),
            Action(events.add_partition, "add a partition", self._add_partition),
            Action(events.compact, "compact", self._compact),
            Action(events.delete, "delete records", self._delete),
            Action(events.kill_all, "kill all", self.kill_all),
        ]
        self._always = [action for action in always if action.weight]

    def _place(self, topics: Sequence[str]) -> Place:
        places = self.cluster.places(*topics)
        return places[self.choose(len(places), "partition")]

    def append(self) -> None:
        """Append a record to an input."""
        key, value = self._record(self)
        self.cluster.append(self._place(self._inputs), key, value)

    def _pass_time(self) -> None:
        self.cluster.now_ms += (60_000, HOUR_MS, 24 * HOUR_MS)[self.choose(3, "time that passes")]

    def _jump(self) -> None:
        place = self._place(self._inputs)
        self.cluster.clock_offset_ms[place] = JUMPS_MS[self.choose(len(JUMPS_MS), "leader's clock")]

    def _add_partition(self) -> None:
        topic = self._inputs[self.choose(len(self._inputs), "topic")]
        self.cluster.create(topic, min(5, len(self.cluster.topics[topic].partitions) + 1), known=False)

    def _compact(self) -> None:
        partition = self.cluster.partition(self._place(self._compacted))
        end = self.choose(partition.end + 1, "end of the compaction")
        partition.compact(
            end, markers=bool(self.choose(2, "markers go")), tombstones=bool(self.choose(2, "tombstones go"))
        )

    def _delete(self) -> None:
        for place, position in self.deletable().items():
            self.cluster.partition(place).delete_before(self.choose(position + 1, "records to delete"))

    def kill_all(self) -> None:
        """End all processes."""
        for process in list(self.scheduler.processes):
            self.scheduler.kill(process)
