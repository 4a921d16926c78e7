"""The IDs of a checkpoint's topics, in the file beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tallystream.errors import TallystreamError
from tallystream_aggregator.jobs.ship import SHIP_AGAIN
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.spark.checkpoint import TopicIdentity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import TopicCollection


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The IDs of the broker's topics, which a test may change."""
    now = {"agg": "first", "events": "second"}

    def result(id_: str) -> Callable[[], object]:
        return lambda: SimpleNamespace(topic_id=id_)

    def describe(names: TopicCollection, **_: object) -> dict[str, Any]:
        return {name: SimpleNamespace(result=result(now[name])) for name in names.topic_names}

    monkeypatch.setattr(clients, "admin", lambda _: SimpleNamespace(describe_topics=describe))
    return now


def test_a_shipper_does_not_continue_in_a_topic_that_was_created_again(tmp_path: Path, ids: dict[str, str]) -> None:
    """Its offsets and the epochs of its fence are those of other rows. The error says how to ship the new topic."""
    checkpoint = tmp_path / "ship"
    assert TopicIdentity(checkpoint, {}, remedy=SHIP_AGAIN).check(["agg"]) == ["agg"]
    assert TopicIdentity(checkpoint, {}, remedy=SHIP_AGAIN).check(["agg", "events"]) == ["events"]
    assert (tmp_path / "ship.topic").read_text() == "first agg\nsecond events\n"
    ids["events"] = "third"
    assert TopicIdentity(checkpoint, {}, remedy=SHIP_AGAIN).check(["agg"]) == []
    for _ in range(2):
        with pytest.raises(
            TallystreamError, match=r"topic events: it was deleted and created again .*with a new --checkpoint\.$"
        ):
            TopicIdentity(checkpoint, {}, remedy=SHIP_AGAIN).check(["agg", "events"])
    assert TopicIdentity(tmp_path / "new", {}, remedy=SHIP_AGAIN).check(["events"]) == ["events"]
