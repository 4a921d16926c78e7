"""The shipper asks the ledger which epochs aggregators have taken, and waits while it can't be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import TallystreamError
from tallystream_aggregator.health.internal_metrics import InternalMetrics
from tallystream_aggregator.jobs.ship import Shipper, _highest_epoch
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.shipping.retry import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable

OPENED = LedgerRow(kind="opened", query=ledger.QUERY, epoch=3, ts=1)
FAILURES = [KafkaException(KafkaError(KafkaError._TRANSPORT)), TallystreamError("its end was not reached in time")]


class Stop:
    """A request to stop that comes at the `after`th wait."""

    def __init__(self, after: int) -> None:
        self.left = after

    def wait(self, _timeout: float) -> bool:
        """Tell whether it has come, at once."""
        self.left -= 1
        return self.left <= 0


def reading(*answers: Any) -> Callable[..., list[LedgerRow]]:
    """Return what reads the ledger: each answer once, in order; an exception is raised."""
    left = list(answers)

    def read(*_args: object, **_options: object) -> list[LedgerRow]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    return read


def test_a_ledger_that_cannot_be_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health says for what; when the ledger is back, its highest epoch is the answer."""
    monkeypatch.setattr(ledger, "read_rows", reading(*FAILURES, [OPENED]))
    seen: list[str | None] = []

    class Status:
        waiting_for: str | None = None

        def __setattr__(self, name: str, value: str | None) -> None:
            seen.append(value)

    health: Any = SimpleNamespace(status=Status())
    assert _highest_epoch(Topics(), {}, Stop(9), health) == 3  # type: ignore[arg-type]
    assert seen == ["the ledger", "the ledger", None]


def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is not done: it runs again at the next start."""
    monkeypatch.setattr(ledger, "read_rows", reading(*FAILURES))
    health: Any = SimpleNamespace(status=SimpleNamespace(waiting_for=None))
    with pytest.raises(StoppedError):
        _highest_epoch(Topics(), {}, Stop(1), health)  # type: ignore[arg-type]
    assert health.status.waiting_for == "the ledger"


def test_a_wait_for_the_ledger_does_not_count_as_one_for_the_store() -> None:
    """The gauge `tallystream.ship.store_unavailable` is 1 while the store is away, and says nothing of the ledger."""
    internal_metrics = InternalMetrics("ship")
    health: Any = SimpleNamespace(status=SimpleNamespace(waiting_for=None), internal_metrics=internal_metrics)
    nothing: Any = None
    Shipper(nothing, nothing, nothing, stop=nothing, health=health)
    found: list[float] = []
    for waiting in (None, "the ledger", "the store"):
        health.status.waiting_for = waiting
        found += [sample.value for family in internal_metrics.families() for sample in family.samples]
    assert found == [0, 0, 1]
