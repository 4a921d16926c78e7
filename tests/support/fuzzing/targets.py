"""Everything that reads bytes from outside, and the errors that it documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from support.fuzzing import stores, topics, web
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.table import StateError
from tallystream_aggregator.table.restore import RebuildError

CORPUS = Path(__file__).parents[2] / "corpus"
"""A folder for each target: inputs that the product's own code made once, and those that have found something."""


class Target(NamedTuple):
    """A reader, and the errors that it documents for bytes that it can't use. All others are findings.

    The tests try `inputs`, in one to three seconds.
    """

    run: Callable[[bytes], None]
    inputs: int
    raises: tuple[type[Exception], ...] = ()


TARGETS = {
    "records": Target(topics.records, 150),
    "short-forms": Target(topics.short_forms, 150),
    "sketches": Target(topics.sketches, 150),
    "otlp": Target(topics.otlp_records, 250),
    "rows": Target(topics.rows, 300, (RebuildError,)),
    "states": Target(topics.states, 400, (StateError,)),
    "positions": Target(topics.positions_rows, 1000, (TallystreamError,)),
    "ledger": Target(topics.ledger_rows, 1000),
    "shard-sums": Target(topics.shard_sums, 1000, (msgspec.DecodeError,)),
    "shipped": Target(topics.shipped, 300),
    "local-store": Target(stores.local_store, 100, (ConfigError, SinkUnavailableError)),
    "points": Target(web.points, 100, (ConfigError, SinkUnavailableError)),
    "request": Target(web.request, 300),
    "path": Target(web.path, 300),
    "page": Target(web.page, 400),
}


def corpus_of(name: str) -> list[bytes]:
    """Return the inputs of a target that are kept, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def finding(target: Target, data: bytes) -> Exception | None:
    """Run a target, and return the error that it does not document, None if there is none."""
    try:
        target.run(data)
    except target.raises:
        pass
    except Exception as error:  # noqa: BLE001 (whatever it is)
        return error
    return None
