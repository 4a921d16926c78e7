"""The loop of a shard at the end of an epoch and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.simulation.checkpoints import Batch
from support.simulation.direct import METRICS, Direct
from tallystream_aggregator.stream.broker import BrokerError
from tallystream_aggregator.table import storage

if TYPE_CHECKING:
    import pytest


def test_steps_between_epochs_are_published_and_stored_by_the_next_one() -> None:
    """They are reported as the next epoch's, which does not begin again."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1, 2)
    loop.run_between(direct.after(2))
    assert direct.published() == {METRICS: 2}
    report = loop.run_epoch(direct.store, (1, 1), 1)
    assert (report.records, report.restarts, round(report.seconds)) == (2, 0, 3)
    direct.cluster.partition(METRICS).delete_before(2)
    report = direct.loop().run_epoch(direct.store, (1, 2), 1)  # the state has them
    assert (report.records, report.restarts) == (0, 1)


def test_a_loop_does_not_go_on_after_a_stop() -> None:
    """The stored state is the last thing that a stopped loop does."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.stopped = True
    direct.feed(1)
    loop.run_between(direct.after(30))
    assert direct.published() == {METRICS: 0}


def test_an_outage_between_epochs_is_left_to_the_next_one() -> None:
    """It begins again at what is published."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)

    def fail(request: str) -> None:
        if "write" in request:
            raise BrokerError(f"{request} failed")

    direct.fail = fail
    direct.feed(1)
    loop.run_between(direct.after(30))
    direct.fail = lambda _: None
    assert loop.run_epoch(direct.store, (1, 1), 1).restarts == 1
    assert direct.published() == {METRICS: 1}


def test_a_loop_that_is_replaced_between_epochs_does_not_fence_the_other(caplog: pytest.LogCaptureFixture) -> None:
    """Spark may run the next epoch elsewhere: the loop that went on ends, and begins nothing."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    other = direct.loop()
    other.run_epoch(direct.store.copy(1), (1, 1), 1)
    direct.feed(1)
    direct.requests.clear()
    loop.run_between(direct.after(30))
    assert "is fenced" in caplog.text
    assert "open tallystream-aggregator-0" not in direct.requests
    other.run_between(direct.after(2))
    assert direct.published() == {METRICS: 1}


class Feeding(Batch):
    """A store during whose changes records arrive."""

    direct: Direct

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""
        super().add(number, entry)
        self.direct.feed(self.direct.cluster.now_ms)
        self.direct.pass_time(1)


def test_steps_go_on_while_a_large_state_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are published at once, and stored, too. After ten seconds the rest is stored first: Spark waits for it."""
    monkeypatch.setattr(storage, "ENTRY_BYTES", 1)
    direct = Direct()
    store = Feeding(0)
    direct.store, store.direct = store, direct
    for number in range(50):
        direct.feed(1, name=f"n{number}")
    loop = direct.loop()
    report = loop.run_epoch(store, (1, 0), 1)
    assert direct.published() == {METRICS: report.records}
    assert 55 < report.records < 65
    direct.cluster.partition(METRICS).delete_before(report.records)
    report = direct.loop().run_epoch(store, (1, 1), 1)  # the state has them
    assert report.restarts == 1


def test_a_state_counts_as_before_if_a_step_fails_while_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch ends with the state of the last one, and the next one begins again at what is published."""
    monkeypatch.setattr(storage, "ENTRY_BYTES", 1)
    monkeypatch.setattr(storage, "COPY_FLOOR", 0)
    direct = Direct()
    direct.feed(1, 2)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    head = direct.store.head()
    store = Feeding(0, head, direct.store.entries)
    direct.store, store.direct = store, direct
    direct.feed(3)
    written = len(store.entries)

    def fail(request: str) -> None:
        if "write" in request and len(store.entries) > written:
            raise BrokerError(f"{request} failed")

    direct.fail = fail
    loop.run_epoch(store, (1, 1), 1)
    assert store.head() == head
    direct.fail = lambda _: None
    report = direct.loop().run_epoch(Batch(2, store.head(), store.entries), (1, 2), 1)
    assert report.restarts == 1
    assert direct.published() == {METRICS: direct.cluster.partition(METRICS).end}
