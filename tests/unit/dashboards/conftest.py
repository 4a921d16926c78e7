"""A local store and its reader, for the tests of what is read back from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystream_aggregator.sinks.sqlite.sink import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """Yield a local store without retention."""
    opened = LocalStore(tmp_path / "store.db", retention_ms=0)
    opened.setup()
    yield opened
    opened.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LocalStore]:
    """Yield a reader of the same store."""
    opened = LocalStore(tmp_path / "store.db")
    yield opened
    opened.close()
