"""Garbage collections in a task's process."""

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
    """An object of a task."""


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "_tasks", iter(range(257, 500)))
    yield
    gc.unfreeze()


def test_no_collection_runs_inside_the_block() -> None:
    """A cycle is collected after it."""
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


def test_many_remaining_objects_are_frozen() -> None:
    """Later collections skip them. Without a reference they are freed immediately."""
    with gc_paused():
        table = [Kept() for _ in range(MAX_OBJECTS + 1)]
    assert gc.get_freeze_count() > MAX_OBJECTS
    seen = weakref.ref(table[0])
    del table
    assert seen() is None


def test_objects_are_frozen_after_some_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are tasks 1, 2, 4, 8 and so on, and every `FREEZE_INTERVAL`-th one."""
    monkeypatch.setattr(module, "_tasks", iter([1, 3, 4, 255, 3 * FREEZE_INTERVAL]))
    frozen = []
    for _ in range(5):
        gc.unfreeze()
        with gc_paused():
            pass
        frozen.append(gc.get_freeze_count() > 0)
    assert frozen == [True, False, True, False, True]
