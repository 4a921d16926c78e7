"""The local system in the current folder, whose broker and store are a command's defaults."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError, TallystreamError
from tallystream_cli.local import state_file
from tallystream_cli.options import kafka_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.kafka.clients import Cluster
    from tallystream_aggregator.sinks.stores import StoreSettings

FOLDER = Path(".tallystream")
"""The default of `tallystream up --data`."""

BROKER = "localhost:9092"


class RunningSystem(NamedTuple):
    """A local system that runs."""

    folder: Path
    state: state_file.SystemState

    def store(self) -> StoreSettings:
        """Return its store, with its organization and bucket."""
        from tallystream_aggregator.sinks.stores import StoreSettings  # here, as the stores are slow to import

        own = {"INFLUXDB_ORG": self.state.org, "INFLUXDB_BUCKET": self.state.bucket} if self.state.org else {}
        return StoreSettings.parse(self.state.store, env={**os.environ, **own})

    def announce(self, *used: str) -> None:
        """Write to standard error what the command uses of this system."""
        sys.stderr.write(f"{' and '.join(used)}, of the local system in {self.folder}\n")


def find(folder: Path = FOLDER) -> RunningSystem | None:
    """Return the system that runs in a folder, None if there is none or another user owns its state file.

    Another user could name a store in that file to which the command would send this user's token.
    """
    try:
        own = (folder / state_file.NAME).stat().st_uid == os.geteuid()
        state = state_file.running(folder) if own else None
    except (OSError, TallystreamError):
        return None
    return None if state is None else RunningSystem(folder.absolute(), state)


def resolve_cluster(bootstrap_servers: str | None, topic_prefix: str, kafka: Iterable[str] | None) -> Cluster:
    """Return the cluster of the options, or that of the local system if no brokers are given; announce the latter."""
    from tallystream_aggregator.kafka.clients import Cluster

    local = find() if bootstrap_servers is None else None
    if local is None:
        return Cluster(bootstrap_servers or BROKER, topic_prefix, kafka_options(kafka, os.environ))
    local.announce(f"broker {local.state.bootstrap_servers}")
    # Variables of the environment describe another cluster: a prefix or a login in them does not apply to this one.
    prefix = "" if topic_prefix == os.environ.get("TALLYSTREAM_TOPIC_PREFIX") else topic_prefix
    return Cluster(local.state.bootstrap_servers, prefix, kafka_options(kafka, {}))


def require_existing(store: StoreSettings) -> StoreSettings:
    """Return `store`.

    Raises:
        ConfigError: it is a local store whose file does not exist, or this user may not look for it.
    """
    if store.kind != "local":
        return store
    from tallystream_aggregator.sinks.sqlite.database import translated_errors

    path = Path(store.where)
    with translated_errors(path):
        exists = path.exists()
    if not exists:
        remedy = "correct the path, or start what writes it first (tallystream ship, lag collect)"
        raise ConfigError("--store", store.spec, f"there is no such file: {remedy}")
    return store


def readable_store(store: str | None) -> StoreSettings:
    """Return the store of the options, or that of the local system if none is given; announce the latter.

    Raises:
        ConfigError: no store is given and no local system runs, or the store can't be read.
    """
    from tallystream_aggregator.sinks.stores import StoreSettings

    if store is not None:
        return require_existing(StoreSettings.parse(store).require_readable())
    local = find()
    if local is None:
        remedy = f"name a store, or start a local system, which is found in {FOLDER}: tallystream up"
        raise ConfigError("--store", None, remedy)
    local.announce(f"store {local.state.store}")
    return require_existing(local.store().require_readable())
