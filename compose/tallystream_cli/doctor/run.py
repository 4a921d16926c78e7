"""All checks, in the order in which the parts need each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topics import policies
from tallystream_cli.doctor import broker, cluster, permissions
from tallystream_cli.doctor.findings import failed, guarded, not_checked, of_error, ok, within
from tallystream_cli.doctor.installation import check_installation
from tallystream_cli.doctor.store import check_store, writable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding

BROKER_S, SECONDS = 15.0, 6.0
"""The time for all requests to the brokers, and for the checks of the store and of the checkpoint."""


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """What to check. `kafka` are librdkafka's options, with bootstrap.servers.

    `store` and `checkpoint` are None if they are not named. `commands` are those that will run here with these
    credentials; if there are none, the permissions of all are compared.
    """

    topics: Topics
    kafka: dict[str, str] = field(repr=False)
    store: StoreSettings | None = None
    checkpoint: Path | None = None
    commands: tuple[str, ...] = ()


def run(settings: DoctorSettings) -> Iterator[Finding]:
    """Check everything. A check that fails is a finding. Nothing is changed, but a transactional ID may be opened.

    Raises:
        ConfigError: librdkafka rejects an option.
    """
    yield from check_installation()
    try:
        found = within(BROKER_S, lambda: _fetch(settings))
    except Exception as error:
        if isinstance(error, ConfigError) and error.field == "--kafka":
            raise
        yield of_error("broker", error)
        for check in ("transactions", "topics", "permissions", "aggregator"):
            yield not_checked(check, "no broker answers")
    else:
        yield from _broker_findings(settings, found)
    if (store := settings.store) is None:
        yield not_checked("store", "none is named", "give --store")
    else:
        yield from guarded("store", SECONDS, lambda: check_store(store, settings.commands))
    if (checkpoint := settings.checkpoint) is None:
        yield not_checked("checkpoint", "none is named", "give --checkpoint")
    else:
        yield from guarded("checkpoint", SECONDS, lambda: [_checkpoint(checkpoint)])


def _fetch(settings: DoctorSettings) -> cluster.Cluster:
    topics = settings.topics
    groups = permissions.group_names(topics.prefix)
    found = cluster.fetch(settings.kafka, [*policies(topics), cluster.TRANSACTIONS], groups)
    ledger = found.topics.get(topics.ledger)
    if cluster.TRANSACTIONS not in found.topics and (ledger is None or not ledger.records):
        return found
    opened = cluster.open_transactional_id(settings.kafka, permissions.transactional_id(topics.prefix))
    return replace(found, transactions=opened)


def _broker_findings(settings: DoctorSettings, found: cluster.Cluster) -> Iterator[Finding]:
    yield broker.broker(found)
    yield broker.transactions(found)
    yield from broker.topics(found, settings.topics)
    yield from permissions.permissions(found, settings.topics, settings.commands)
    yield broker.lease(found, settings.topics)


def _checkpoint(path: Path) -> Finding:
    """Check the folder. Whether its content is usable is not checked: a damaged one is made again, from the table."""
    if writable(path) and writable(path.absolute().parent):
        return ok("checkpoint", f"this user may write {path} and beside it")
    return failed("checkpoint", f"this user may not write {path} or beside it", "allow it, or run as its user")
