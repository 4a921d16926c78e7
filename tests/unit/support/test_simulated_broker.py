"""The simulated cluster behaves as Kafka where the loop's protocol depends on it."""

from __future__ import annotations

import pytest

from support.simulation.broker import SimulatedCluster
from tallystream_aggregator.stream.broker import Bounds, BrokerError, FencedError, Place

A, B = Place("metrics-agg", 0), Place("metrics-table", 0)
X = "tallystream-0"


@pytest.fixture
def cluster() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create("metrics-agg", 1)
    cluster.create("metrics-table", 1)
    return cluster


def opened(cluster: SimulatedCluster) -> int:
    epoch = cluster.open_writer(X)
    while epoch is None:
        mark_all(cluster)
        epoch = cluster.open_writer(X)
    return epoch


def write(cluster: SimulatedCluster, epoch: int, value: bytes, *places: Place) -> None:
    cluster.add_partitions(X, epoch, places)
    for place in places:
        cluster.produce(X, epoch, place, [(b"k", value)])


def mark(cluster: SimulatedCluster, place: Place) -> None:
    next(action for action in cluster.actions() if action.name == f"marker {place}").run()


def mark_all(cluster: SimulatedCluster) -> None:
    for action in list(cluster.actions()):
        if action.name.startswith("marker"):
            action.run()


def values(cluster: SimulatedCluster, place: Place) -> list[bytes | None]:
    """Return what a reader with `read_committed` sees."""
    partition = cluster.partition(place)
    return [entry.value for entry in partition.committed(0, partition.end)]


def test_a_transaction_is_seen_by_committed_readers_only_after_its_marker(cluster: SimulatedCluster) -> None:
    """Before the marker, records are in the log for `read_uncommitted`, and the last stable offset is before them."""
    epoch = opened(cluster)
    write(cluster, epoch, b"1", A)
    assert [entry.value for entry in cluster.fetch(A, 0, 10)[0]] == [b"1"]
    assert (values(cluster, A), cluster.partition(A).bounds) == ([], Bounds(0, 0, 1))
    cluster.end(X, epoch, "commit")
    assert values(cluster, A) == []
    mark_all(cluster)
    assert (values(cluster, A), cluster.partition(A).bounds) == ([b"1"], Bounds(0, 2, 2))


def test_partitions_show_a_transaction_at_different_times_and_the_next_one_waits_for_all(
    cluster: SimulatedCluster,
) -> None:
    """After the first of two markers, one partition has the records and the other does not."""
    epoch = opened(cluster)
    write(cluster, epoch, b"1", A, B)
    cluster.end(X, epoch, "commit")
    mark(cluster, B)
    assert (values(cluster, A), values(cluster, B)) == ([], [b"1"])
    with pytest.raises(BrokerError, match="still ending"):
        cluster.add_partitions(X, epoch, [B])
    mark(cluster, A)
    write(cluster, epoch, b"2", B)


def test_an_open_transaction_holds_back_records_without_a_transaction(cluster: SimulatedCluster) -> None:
    """The last stable offset stops before it, whoever wrote what follows."""
    epoch = opened(cluster)
    cluster.append(A, b"a", b"before")
    write(cluster, epoch, b"1", A)
    cluster.append(A, b"a", b"after")
    assert values(cluster, A) == [b"before"]
    cluster.end(X, epoch, "abort")
    mark_all(cluster)
    assert values(cluster, A) == [b"before", b"after"]


def test_opening_a_writer_fences_the_last_one_and_aborts_its_transaction(cluster: SimulatedCluster) -> None:
    """The fence holds from the first request on, before the markers are written."""
    old = opened(cluster)
    write(cluster, old, b"1", A)
    assert cluster.open_writer(X) is None
    for request in (
        lambda: cluster.produce(X, old, A, [(b"k", b"2")]),
        lambda: cluster.end(X, old, "commit"),
        lambda: cluster.add_partitions(X, old, [A]),
    ):
        with pytest.raises(FencedError):
            request()
    new = opened(cluster)
    write(cluster, new, b"3", A)
    cluster.end(X, new, "commit")
    mark_all(cluster)
    assert values(cluster, A) == [b"3"]


def test_opening_a_writer_waits_for_a_commit_that_was_decided(cluster: SimulatedCluster) -> None:
    """The transaction is committed in all partitions before the new writer has its epoch."""
    old = opened(cluster)
    write(cluster, old, b"1", A, B)
    cluster.end(X, old, "commit")
    assert cluster.open_writer(X) is None
    mark(cluster, A)
    assert cluster.open_writer(X) is None
    mark(cluster, B)
    assert cluster.open_writer(X) == old + 1
    assert (values(cluster, A), values(cluster, B)) == ([b"1"], [b"1"])


def test_a_late_end_commits_what_is_open_when_it_arrives_unless_it_is_fenced(cluster: SimulatedCluster) -> None:
    """The request names no transaction, so half of the next one is committed, and the other half is refused."""
    epoch = opened(cluster)
    write(cluster, epoch, b"1", A)
    cluster.in_flight.append(("commit", lambda: cluster.end(X, epoch, "commit")))
    cluster.end(X, epoch, "abort")
    mark_all(cluster)
    cluster.add_partitions(X, epoch, [A, B])
    cluster.produce(X, epoch, A, [(b"k", b"half")])
    next(action for action in cluster.actions() if action.name == "late commit").run()
    with pytest.raises(BrokerError, match="no open transaction"):
        cluster.produce(X, epoch, B, [(b"k", b"other half")])
    mark_all(cluster)
    assert (values(cluster, A), values(cluster, B)) == ([b"half"], [])

    write(cluster, epoch, b"2", B)
    cluster.in_flight.append(("commit", lambda: cluster.end(X, epoch, "commit")))
    opened(cluster)
    next(iter(cluster.actions())).run()
    assert (values(cluster, B), list(cluster.actions())) == ([], [])


def test_an_expired_transaction_is_aborted_and_its_writer_is_fenced(cluster: SimulatedCluster) -> None:
    """The coordinator raises the epoch, as it does after the timeout."""
    epoch = opened(cluster)
    write(cluster, epoch, b"1", A)
    cluster.expire(X)
    with pytest.raises(FencedError):
        cluster.end(X, epoch, "commit")
    mark_all(cluster)
    assert values(cluster, A) == []


def test_a_compaction_keeps_the_newest_committed_record_of_a_key_and_all_offsets(cluster: SimulatedCluster) -> None:
    """Aborted and older records go, and so may markers; the end and records after the last stable offset stay."""
    epoch = opened(cluster)
    for value, outcome in ((b"1", "commit"), (b"2", "commit"), (b"3", "abort")):
        write(cluster, epoch, value, A)
        cluster.end(X, epoch, outcome)  # type: ignore[arg-type]
        mark_all(cluster)
    write(cluster, epoch, b"4", A)
    partition = cluster.partition(A)
    partition.compact(partition.end, markers=True, tombstones=True)
    assert [(e.offset, e.value, e.marker) for e in partition.entries] == [
        (2, b"2", None),
        (3, None, "commit"),
        (6, b"4", None),
    ]
    assert (values(cluster, A), partition.bounds) == ([b"2"], Bounds(0, 6, 7))
    records, end = cluster.fetch(A, 0, 1)
    assert ([entry.offset for entry in records], end) == ([2], 6)


def test_a_truncation_that_loses_a_marker_leaves_a_transaction_that_hangs(cluster: SimulatedCluster) -> None:
    """The last stable offset stays before it, though a new writer opens; the end goes back."""
    epoch = opened(cluster)
    write(cluster, epoch, b"1", A)
    cluster.end(X, epoch, "commit")
    mark_all(cluster)
    cluster.partition(A).truncate(1)
    opened(cluster)
    assert (values(cluster, A), cluster.partition(A).bounds) == ([], Bounds(0, 0, 1))
    cluster.partition(A).truncate(0)
    assert cluster.partition(A).bounds == Bounds(0, 0, 0)
