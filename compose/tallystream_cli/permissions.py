"""The permissions in Kafka that each command needs. docs/security.md has a table of them."""

from __future__ import annotations

from typing import NamedTuple

TRANSACTIONAL_ID = "transactional ID"


class Permission(NamedTuple):
    """The operations that a command performs on a topic, a group or a transactional ID, in Kafka's words.

    A `name` that ends in `*` is a prefix; `*` alone is every name.
    """

    command: str
    resource: str
    name: str
    operations: tuple[str, ...]

    def with_prefix(self, prefix: str) -> Permission:
        """Return it for a system whose topics have a prefix."""
        prefixed = self.name != "*" and (self.resource != "group" or self.name in _GROUPS)
        return self._replace(name=prefix + self.name) if prefixed else self


_GROUPS = {"tallystream-aggregator", "tallystream-aggregator-lease", "tallystream-shipper"}
"""The groups whose names have the prefix of the topics."""

_NEEDED = (
    ("reporter", "topic", "metrics", "Write"),
    # It writes its internal metrics and clock records, and looks whether the topic has append times.
    ("aggregate", "topic", "metrics", "Read Write DescribeConfigs Create"),
    # It reads sums, events and dead letters only if Kafka has lost the markers of a step.
    (
        "aggregate",
        "topic",
        "metrics-agg metrics-events metrics-dead metrics-table metrics-shards metrics-ledger",
        "Read Write Create",
    ),
    ("aggregate", TRANSACTIONAL_ID, "tallystream-aggregator-*", "Write Describe"),
    # The offsets are for lag tools. For `tallystream-reading` nothing is committed: librdkafka requires a group ID.
    ("aggregate", "group", "tallystream-aggregator tallystream-aggregator-lease tallystream-reading", "Read"),
    ("ship", "topic", "metrics-agg metrics-events metrics-table", "Read"),
    ("ship", "topic", "metrics-dead", "Write"),
    ("ship", "topic", "metrics", "Write DescribeConfigs"),
    ("ship", "group", "tallystream-shipper tallystream-reading", "Read"),
    ("rebuild", "topic", "metrics-table metrics-agg metrics-ledger metrics-events metrics-dead", "Read Write"),
    ("rebuild", "topic", "metrics-shards", "Read Write Create"),
    ("rebuild", "topic", "metrics", "Read"),
    ("rebuild", TRANSACTIONAL_ID, "tallystream-aggregator-*", "Write Describe"),
    ("rebuild", "group", "tallystream-aggregator-lease tallystream-reading", "Read"),
    ("forget", "topic", "metrics-table metrics-shards", "Read"),
    ("forget", "topic", "metrics", "Write"),
    ("forget", "group", "tallystream-reading", "Read"),
    (
        "verify",
        "topic",
        "metrics metrics-agg metrics-table metrics-shards metrics-ledger metrics-dead metrics-events",
        "Read",
    ),
    ("verify", "group", "tallystream-verify tallystream-reading", "Read"),
    ("sums", "topic", "metrics-agg", "Read"),
    ("sums", "group", "tallystream-reading", "Read"),
    # Groups that it may not describe are left out.
    ("lag collect", "group", "*", "Describe"),
    ("lag collect", "topic", "*", "Describe"),
    (
        "doctor",
        "topic",
        "metrics metrics-agg metrics-table metrics-events metrics-ledger metrics-dead metrics-shards",
        "Describe DescribeConfigs",
    ),
    ("doctor", "group", "tallystream-aggregator-lease", "Describe"),
)

PERMISSIONS = tuple(
    Permission(command, resource, name, tuple(operations.split()))
    for command, resource, names, operations in _NEEDED
    for name in names.split()
)
"""`Read`, `Write` and `Delete` include `Describe`."""
