"""Garbage collections in a task's process."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from tallystream_aggregator.spark.gc_pause import gc_paused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kept:
    """An object of a task."""


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_no_collection_runs_inside_the_block() -> None:
    """A cycle is collected at its end."""
    one = Kept()
    one.itself = one  # type: ignore[attr-defined]
    seen = weakref.ref(one)
    with gc_paused():
        del one
        assert not gc.isenabled()
        assert seen() is not None
    assert gc.isenabled()
    assert seen() is None


def test_remaining_objects_are_frozen() -> None:
    """Later collections skip them. Without a reference they are freed immediately."""
    with gc_paused():
        table = [Kept() for _ in range(1000)]
    assert gc.get_freeze_count() > 1000
    seen = weakref.ref(table[0])
    del table
    assert seen() is None
