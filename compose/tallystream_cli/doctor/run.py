"""All checks, in the order in which the parts need each other."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator import java
from tallystream_cli.doctor import broker
from tallystream_cli.doctor.findings import failed, guarded, not_checked, of_error, ok, warning
from tallystream_cli.doctor.store import check_store
from tallystream_cli.options import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding


def run(
    topics: Topics,
    kafka: Mapping[str, str],
    store: StoreSettings | None = None,
    checkpoint: Path | None = None,
) -> Iterator[Finding]:
    """Check everything. A check that fails is a finding. Nothing is changed, but a transactional ID is opened.

    `kafka` are librdkafka's options, with bootstrap.servers. `store` and `checkpoint` are None if they are not named.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    yield package("Spark", "pyspark", "aggregate and up", "pip install tallystream-cli[spark]")
    yield package("page", "streamlit", "the page", "pip install streamlit")
    yield from guarded("Java", _java)
    yield from _broker(topics, kafka)
    if store is None:
        yield not_checked("store", "none is named", "give --store")
    else:
        yield from guarded("store", lambda: check_store(store))
    if checkpoint is None:
        yield not_checked("checkpoint", "none is named", "give --checkpoint")
    elif unwritable(checkpoint) is None:  # a damaged one is made again, from the table
        yield ok("checkpoint", f"this user may write {checkpoint} and beside it")
    else:
        yield failed("checkpoint", f"this user may not write {checkpoint} or beside it", "allow it, or run as its user")


def package(check: str, name: str, needed_by: str, remedy: str) -> Finding:
    """Check that an optional package is installed."""
    if find_spec(name) is None:
        return warning(check, f"{name} is not installed, so {needed_by} can't run", remedy)
    return ok(check, f"{name} {version(name)}")


def _java() -> list[Finding]:
    where = "from JAVA_HOME" if os.environ.get("JAVA_HOME") else "from PATH"
    return [ok("Java", f"{java.version()}, {java.launcher()} {where}")]


def _broker(topics: Topics, kafka: Mapping[str, str]) -> Iterator[Finding]:
    unused_id = f"{topics.prefix}tallystream-aggregator-doctor"  # the aggregator's permission covers it
    try:
        found = broker.fetch(kafka, topics, unused_id)
    except Exception as error:
        if isinstance(error, ConfigError) and error.field == "--kafka":
            raise
        yield of_error("broker", error)
        for check in ("transactions", "topics", "aggregator", "lag"):
            yield not_checked(check, "no broker answers")
        return
    yield from broker.findings(found, topics)
