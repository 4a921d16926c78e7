"""The permissions in Kafka that each command needs. docs/security.md has a table of them."""

from __future__ import annotations

from typing import NamedTuple


class Permission(NamedTuple):
    """The operations that a command performs on a topic, a group or a transactional ID, in Kafka's words.

    `why` is for those who read this list.

    A `name` that ends in `*` is a prefix; `*` alone is every name.
    """

    command: str
    resource: str
    name: str
    operations: tuple[str, ...]
    why: str

    def with_prefix(self, prefix: str) -> Permission:
        """Return it for a system whose topics have a prefix."""
        prefixed = self.name != "*" and (self.resource != "group" or self.name in _GROUPS)
        return self._replace(name=prefix + self.name) if prefixed else self


_GROUPS = {"tallystream-aggregator", "tallystream-aggregator-lease", "tallystream-shipper"}
"""The groups whose names have the prefix of the topics."""

_READING = "librdkafka requires a group ID; nothing is committed"

_TRANSACTIONS = "transactions of the shards, the combiner and the lease"
TRANSACTIONAL_ID = "transactional ID"
_TOPIC_CHECKS = "partitions, configuration"

PERMISSIONS = (
    Permission("reporter", "topic", "metrics", ("Write",), "snapshots"),
    Permission(
        "aggregate",
        "topic",
        "metrics",
        ("Read", "Write", "DescribeConfigs", "Create"),
        "records; its internal metrics, and clock records; whether the topic has append times",
    ),
    Permission("aggregate", "topic", "metrics-agg", ("Write", "Create"), "sums"),
    Permission("aggregate", "topic", "metrics-table", ("Read", "Write", "Create"), "rows, and what is published"),
    Permission("aggregate", "topic", "metrics-shards", ("Read", "Write", "Create"), "sums of several shards"),
    Permission("aggregate", "topic", "metrics-events", ("Write", "Create"), "events"),
    Permission("aggregate", "topic", "metrics-ledger", ("Read", "Write", "Create"), "epochs, and the generation"),
    Permission("aggregate", "topic", "metrics-dead", ("Write", "Create"), "dead letters"),
    Permission("aggregate", TRANSACTIONAL_ID, "tallystream-aggregator-*", ("Write", "Describe"), _TRANSACTIONS),
    Permission("aggregate", "group", "tallystream-aggregator", ("Read",), "offsets for lag tools"),
    Permission("aggregate", "group", "tallystream-aggregator-lease", ("Read",), "the lease"),
    Permission("aggregate", "group", "tallystream-reading", ("Read",), _READING),
    Permission("ship", "topic", "metrics-agg", ("Read",), "sums"),
    Permission("ship", "topic", "metrics-events", ("Read",), "events"),
    Permission("ship", "topic", "metrics-table", ("Read",), "rows of instances, with `--rows`"),
    Permission("ship", "topic", "metrics-dead", ("Write",), "points that the store rejects"),
    Permission(
        "ship",
        "topic",
        "metrics",
        ("Write", "DescribeConfigs"),
        "its internal metrics; whether the topic has append times",
    ),
    Permission("ship", "group", "tallystream-shipper", ("Read",), "membership and positions"),
    Permission("ship", "group", "tallystream-reading", ("Read",), _READING),
    Permission("rebuild", "topic", "metrics-table", ("Read", "Write"), "rows, and what is published"),
    Permission("rebuild", "topic", "metrics-agg", ("Read", "Write"), "sums"),
    Permission("rebuild", "topic", "metrics-shards", ("Read", "Write", "Create"), "sums of several shards"),
    Permission("rebuild", "topic", "metrics-events", ("Write",), "events up to the new beginning"),
    Permission("rebuild", "topic", "metrics-dead", ("Write",), "dead letters up to the new beginning"),
    Permission("rebuild", "topic", "metrics-ledger", ("Read", "Write"), "the generation"),
    Permission("rebuild", "topic", "metrics", ("Read",), "the records up to the new beginning"),
    Permission("rebuild", TRANSACTIONAL_ID, "tallystream-aggregator-*", ("Write", "Describe"), _TRANSACTIONS),
    Permission("rebuild", "group", "tallystream-aggregator-lease", ("Read",), "the lease"),
    Permission("rebuild", "group", "tallystream-reading", ("Read",), _READING),
    Permission("forget", "topic", "metrics-table", ("Read",), "what would be taken out, and what has been"),
    Permission("forget", "topic", "metrics-shards", ("Read",), "what has been taken out, of several shards"),
    Permission("forget", "topic", "metrics", ("Write",), "forget records, with `--yes`"),
    Permission("forget", "group", "tallystream-reading", ("Read",), _READING),
    Permission("verify", "topic", "metrics", ("Read",), "the records"),
    Permission("verify", "topic", "metrics-agg", ("Read",), "sums"),
    Permission("verify", "topic", "metrics-table", ("Read",), "the positions that are published"),
    Permission("verify", "topic", "metrics-shards", ("Read",), "those of the combiner of several shards"),
    Permission("verify", "topic", "metrics-ledger", ("Read",), "epochs"),
    Permission("verify", "topic", "metrics-dead", ("Read",), "dead letters"),
    Permission("verify", "topic", "metrics-events", ("Read",), "events"),
    Permission("verify", "group", "tallystream-verify", ("Read",), _READING),
    Permission("verify", "group", "tallystream-reading", ("Read",), "as above"),
    Permission("sums", "topic", "metrics-agg", ("Read",), "sums, without a store"),
    Permission("sums", "group", "tallystream-reading", ("Read",), _READING),
    Permission(
        "lag collect",
        "group",
        "*",
        ("Describe",),
        "groups, members, offsets. Groups that it may not describe are left out",
    ),
    Permission("lag collect", "topic", "*", ("Describe",), "ends of partitions"),
    Permission("doctor", "topic", "metrics", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "topic", "metrics-agg", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "topic", "metrics-table", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "topic", "metrics-events", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "topic", "metrics-ledger", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "topic", "metrics-dead", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "topic", "metrics-shards", ("Describe", "DescribeConfigs"), _TOPIC_CHECKS),
    Permission("doctor", "group", "tallystream-aggregator-lease", ("Describe",), "whether an aggregator runs"),
)
"""`Read`, `Write` and `Delete` include `Describe`."""


def commands() -> list[str]:
    """Return the commands that need permissions, in the order of the table."""
    return list(dict.fromkeys(one.command for one in PERMISSIONS))
