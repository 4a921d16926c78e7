"""The newest sums without a store, read from the topic again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from tallystream_aggregator import sums
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.shipping import latest_reader
from tallystream_aggregator.shipping.latest_reader import LatestReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def test_a_topic_that_was_created_again_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of the earlier topic are forgotten. A refresh reads only what is new."""
    topic: list[str] = ["a", "b", "a"]
    starts = []

    def read_from(_consumer: Any, _topic: str, at: dict[int, int], end: dict[int, int], **_: Any) -> Iterator[Read]:
        starts.append(at[0])
        for offset, name in enumerate(topic[at[0] : end[0]], at[0]):
            yield Read(name.encode(), sums.Sum(app="x", name=name, type="counter", count=1, ts=1).value(), offset)

    monkeypatch.setattr(latest_reader, "check_login", lambda _kafka: None)
    monkeypatch.setattr(clients, "reading_consumer", lambda _kafka: MagicMock())
    monkeypatch.setattr(latest_reader, "bounds_of", lambda *_, **__: (0, len(topic)))
    monkeypatch.setattr(latest_reader, "read_from", read_from)
    reader = LatestReader(clients.Cluster("b:9092"))
    assert reader.refresh().measurements() == ["a", "b"]
    topic.append("c")
    assert reader.refresh().measurements() == ["a", "b", "c"]
    topic[:] = ["d"]
    assert reader.refresh().measurements() == ["d"]
    assert starts == [0, 3, 0]
