"""The loop of a shard, one failure at a time: what fails again and again, and what is only away for a while."""

from __future__ import annotations

import pytest

from support.simulation.broker import BEGIN_MS
from support.simulation.direct import METRICS, Direct
from tallystream.ulid import new_ulid
from tallystream_aggregator.stream import compaction
from tallystream_aggregator.stream import loop as loop_module
from tallystream_aggregator.stream.broker import BrokerError, Place, UnavailableError
from tallystream_aggregator.stream.epochs import StepFailedError

OTHER = Place("metrics", 1)

WRITE, OPEN = "write metrics-agg:0 tallystream-aggregator-0", "open tallystream-aggregator-0"


def refuse(direct: Direct, what: str, times: int = 10**9, kind: type[Exception] = BrokerError) -> None:
    """Let requests with this name fail so many times."""
    left = [times]

    def fail(request: str) -> None:
        if what in request and left[0] > 0:
            left[0] -= 1
            raise kind(f"{request} failed")

    direct.fail = fail


def test_a_record_that_cannot_be_published_stops_the_loop() -> None:
    """Its step is halved down to one record, though a claim is published in between, and the error names the place."""
    direct = Direct()
    loop = direct.loop()
    direct.feed(1, 2)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(3, 50))
    refuse(direct, "write metrics-agg")
    with pytest.raises(StepFailedError, match=r"^a step of one record failed 10 times, after .*: 2\}\}: "):
        loop.run_epoch(direct.store, (1, 1), 600)
    assert direct.published() == {METRICS: 2}
    assert direct.requests.count(WRITE) == 1 + 5 + 10  # of 2, of 47 to 2, and of 1 record


@pytest.mark.parametrize(("begun", "times"), [(True, 50), (False, 5)])
def test_a_claim_that_fails_is_an_outage_and_is_waited_out(begun: bool, times: int) -> None:
    """It has no record that could be the reason, nor has the begin. Afterwards a step has as many records as before."""
    direct = Direct()
    if begun:
        direct.loop().run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(100))
    refuse(direct, "write metrics-table", times)
    report = direct.loop().run_epoch(direct.store, (1, 1), 600)
    assert report.steps < 5
    assert direct.published() == {METRICS: 100}


@pytest.mark.parametrize("topic", ["metrics-agg", "metrics-table"])
def test_a_step_that_times_out_is_tried_again_for_as_long_as_it_takes(topic: str) -> None:
    """It may be an outage of one partition. The first publication of a table may time out, too."""
    direct = Direct()
    direct.feed(1)
    refuse(direct, f"write {topic}", 50, UnavailableError)
    direct.loop().run_epoch(direct.store, (1, 0), 1_000)
    assert direct.published() == {METRICS: 1}


def test_a_step_that_failed_is_halved_and_doubled_again() -> None:
    """Each step that is published doubles the number of records of the next one."""
    direct = Direct()
    loop = direct.loop(max_records=64)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(40))
    refuse(direct, "write metrics-agg", 3)
    ends, noted = [], direct.fail

    def fail(request: str) -> None:
        noted(request)
        if request == "read":
            ends.append((direct.published() or {})[METRICS])

    direct.fail = fail
    loop.run_epoch(direct.store, (1, 1), 20)
    assert sorted(set(ends)) == [0, 5, 15, 35, 40]


def test_an_outage_is_tried_again_after_longer_and_longer_waits_which_begin_anew_after_a_success() -> None:
    """Two outages of a minute have the same number of attempts, and epochs do not matter."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    attempts = []
    for batch in range(1, 120):
        if batch in (1, 60):
            direct.feed(batch)
            until_s, tried = direct.monotonic() + 58, list[str]()
            attempts.append(tried)

            def fail(request: str, until_s: float = until_s, tried: list[str] = tried) -> None:
                if direct.monotonic() < until_s and request in (
                    WRITE,
                    "open tallystream-aggregator-0",
                ):
                    tried.append(request)
                    raise UnavailableError("no answer")

            direct.fail = fail
        loop.run_epoch(direct.store, (1, batch), 1)
    first, second = map(len, attempts)
    assert first == second
    assert first < 70


def test_a_partition_that_is_missing_for_a_moment_is_waited_for() -> None:
    """A broker that has just started may not know it."""
    direct = Direct(partitions=2)
    loop = direct.loop()
    direct.feed(1)
    direct.feed(5, place=OTHER, key=b"app-2")
    loop.run_epoch(direct.store, (1, 0), 1)
    partitions = direct.cluster.topics["metrics"].partitions
    away = partitions.pop()
    direct.fail = lambda _: partitions.append(away) if not partitions[1:] and direct.monotonic() > back_s else None
    back_s = direct.monotonic() + 10
    loop.run_epoch(direct.store, (1, 1), 30)
    direct.feed(7, place=OTHER, key=b"app-2")
    loop.run_epoch(direct.store, (1, 2), 1)
    assert direct.published() == {METRICS: 1, OTHER: 2}


def test_a_loop_that_ended_in_the_middle_of_a_step_begins_again_at_what_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records of the step are in the table, and others of it wait; none of them is lost when the loop goes on."""
    monkeypatch.setattr(compaction, "FEW_RECORDS", 1)
    monkeypatch.setattr(loop_module, "FEW_RECORDS", 1)
    direct = Direct()
    loop = direct.loop(max_records=10)
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(*range(1, 6))
    reads = []

    def fail(request: str) -> None:
        if request == "read":
            reads.append(request)
            if len(reads) == 2:
                raise MemoryError

    direct.fail = fail
    with pytest.raises(MemoryError):
        loop.run_epoch(direct.store, (1, 1), 1)
    direct.feed(6, name="other")
    loop.run_epoch(direct.store, (1, 1), 1)
    assert any(b'"name":"n"' in value and b'"count":5' in value for value in direct.values())


LIVES = [new_ulid(BEGIN_MS) for _ in range(8)]


def snapshot(instance: int, seq: int) -> bytes:
    """Return a snapshot of an instance with two counters."""
    metrics = ",".join(f'{{"type":"counter","name":"{name}","count":{seq}}}' for name in "ab")
    head = f'{{"v":1,"app":"a","life":"{LIVES[instance]}","part":0,"seq":{seq},"ts":0,"every_ms":1000'
    return f'{head},"final":false,"metrics":[{metrics}]}}'.encode()


@pytest.mark.parametrize(
    ("limit", "most"), [("MAX_OUTPUTS", 2), ("MAX_OUTPUT_BYTES", 2 * len(snapshot(1, 2))), ("", 0)]
)
def test_a_step_ends_when_much_waits_to_be_published(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    """What waits is in memory, and a transaction has a limited time: here it is the rows of two lives at most.

    Without that it ends when it has as many records as it may have.
    """
    monkeypatch.setattr(loop_module, "FEW_RECORDS", 1)
    direct = Direct()
    loop = direct.loop(max_records=100 if limit else 2)
    for number in range(8):
        direct.cluster.append(METRICS, b"app-%d" % number, snapshot(number, 1))
    loop.run_epoch(direct.store, (1, 0), 60)
    if limit:
        monkeypatch.setattr(loop_module, limit, most)
    for number in range(8):
        direct.cluster.append(METRICS, b"app-%d" % number, snapshot(number, 2))
    assert loop._open_clients is not None
    source = loop._open_clients[1]
    read = source.read
    monkeypatch.setattr(source, "read", lambda _, timeout_s: read(1, timeout_s))
    direct.requests.clear()
    assert loop.run_epoch(direct.store, (1, 1), 60).records == 8
    assert direct.requests.count(WRITE) == 4


def test_a_rate_limits_what_is_read() -> None:
    """A step has at most the records of a second, and the next one waits until they are due. Nothing is left out."""
    direct = Direct()
    direct.feed(*range(50))
    loop = direct.loop(max_rate=10)
    assert loop.run_epoch(direct.store, (1, 0), 2.5).records == 30
    assert loop.run_epoch(direct.store, (1, 0), 10).records == 20
    assert direct.published() == {METRICS: 50}
