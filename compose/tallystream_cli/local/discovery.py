"""The local system that runs in the current folder: what a command takes where no broker or store is named."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli.options import kafka_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.local.record import SystemRecord

FOLDER = Path(".tallystream")
"""Where `up` keeps everything unless it is told otherwise."""

BROKER = "localhost:9092"


class Local(NamedTuple):
    """A running local system."""

    folder: Path
    record: SystemRecord

    def store(self, org: str | None, bucket: str | None) -> tuple[str, str | None, str | None]:
        """Return its store, with the organization and the bucket, of which the given ones stand."""
        return self.record.store, org or self.record.org, bucket or self.record.bucket

    def say(self, *taken: str) -> None:
        """Say on standard error what is taken of it."""
        sys.stderr.write(f"{' and '.join(taken)}, of the local system in {self.folder}\n")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers of a command, the prefix of its topics, and librdkafka's options, which may hold a password."""

    bootstrap_servers: str
    topic_prefix: str
    kafka: dict[str, str] = field(repr=False)


def cluster(
    local: Local | None, bootstrap_servers: str | None, topic_prefix: str, kafka: Iterable[str] | None
) -> Cluster:
    """Return the cluster of the local system, without one that of the options.

    The environment is of another system: no prefix and no login of it is taken for the local one.
    """
    if local is None:
        return Cluster(bootstrap_servers or BROKER, topic_prefix, kafka_options(kafka, os.environ))
    prefix = "" if topic_prefix == os.environ.get("TALLYSTREAM_TOPIC_PREFIX") else topic_prefix
    return Cluster(local.record.bootstrap_servers, prefix, kafka_options(kafka, {}))


def find(folder: Path = FOLDER) -> Local | None:
    """Return the system of a folder, None where none of this user's runs.

    What another user wrote is not believed: the store that it names would be sent this user's token.
    """
    from tallystream_cli.local import record
    from tallystream_cli.local.system import RECORD

    path = folder / RECORD
    try:
        known = record.read(path) if path.stat().st_uid == os.geteuid() else None
    except (OSError, TallystreamError):
        return None
    return Local(folder.absolute(), known) if known is not None and known.supervisor.alive() else None


def no_store() -> ConfigError:
    """Return the error of a command that needs a store, where none is named and no local system runs."""
    return ConfigError(
        "--store", None, f"name a store, or start a local system, which is found in {FOLDER}: tallystream up"
    )


def existing(store: StoreSettings) -> StoreSettings:
    """Return a store that is to be read.

    Raises:
        ConfigError: it is a local one, and its file is not there.
    """
    if store.kind == "local" and not Path(store.where).exists():
        raise ConfigError(
            "--store",
            store.spec,
            "there is no such file: correct the path, or start what writes it first (tallystream ship, lag collect)",
        )
    return store
