"""What a task's process keeps is set aside from the collections that Spark asks for; what goes, goes."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator.spark import gc_pause as module
from tallystream_aggregator.spark.gc_pause import FREEZE_INTERVAL, MAX_OBJECTS, gc_paused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kept:
    """Something that a batch makes."""


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_tasks", iter(range(257, 500)))
    yield
    gc.unfreeze()


def test_nothing_is_collected_within() -> None:
    """A cycle that is dropped in between is collected after."""
    one = Kept()
    one.itself = one  # type: ignore[attr-defined]
    seen = weakref.ref(one)
    with gc_paused():
        del one
        assert not gc.isenabled()
        assert seen() is not None
    assert gc.isenabled()
    gc.collect()
    assert seen() is None


def test_many_that_stay_are_left_alone_and_freed_by_counting() -> None:
    """After a task that leaves many objects, no collection goes through them; without a reference they go at once."""
    with gc_paused():
        table = [Kept() for _ in range(MAX_OBJECTS + 1)]
    assert gc.get_freeze_count() > MAX_OBJECTS
    seen = weakref.ref(table[0])
    del table
    assert seen() is None


def test_now_and_then_what_has_come_bit_by_bit_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first tasks, less and less often, and then after so many each."""
    monkeypatch.setattr(module, "_tasks", iter([1, 3, 4, 255, 3 * FREEZE_INTERVAL]))
    frozen = []
    for _ in range(5):
        gc.unfreeze()
        with gc_paused():
            pass
        frozen.append(gc.get_freeze_count() > 0)
    assert frozen == [True, False, True, False, True]
