"""The slots that the loops need, on a session that has only them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.spark.epochs import query
from tallystream_aggregator.spark.epochs.query import require_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


class Context:
    """A context whose executors register one after the other. `slots` are those at each look; the last ones stay."""

    def __init__(self, master: str, slots: Sequence[int]) -> None:
        self.master, self._slots = master, list(slots)

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 (Spark's name)
        """The slots now."""
        return self._slots.pop(0) if len(self._slots) > 1 else self._slots[0]


def session(slots: Sequence[int], master: str = "spark://master:7077") -> SparkSession:
    """Return a session with these slots."""
    return cast("SparkSession", SimpleNamespace(sparkContext=Context(master, slots)))


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    timer: Any = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None)
    monkeypatch.setattr(query, "time", timer)


def test_executors_that_register_later_are_waited_for() -> None:
    """A cluster gives a session its executors one by one, after its start."""
    require_slots(session([2, 2, 3, 4]), 4)


def test_a_stop_ends_the_wait_for_executors() -> None:
    """It is no error, and takes no half minute."""
    require_slots(session([2]), 4, lambda: True)


@pytest.mark.parametrize(("master", "slots"), [("spark://master:7077", [2, 3]), ("local[2]", [2, 9])])
def test_too_few_slots_are_refused(master: str, slots: list[int]) -> None:
    """On a cluster after a while, on one machine at once: its slots never change."""
    with pytest.raises(ConfigError, match=r"each of the 4 loops needs one"):
        require_slots(session(slots, master), 4)
