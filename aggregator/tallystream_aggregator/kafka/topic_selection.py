"""The input of a table: `metrics`, every topic that a pattern matches, or some partitions of `metrics`; OTLP topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from tallystream.errors import ConfigError, TallystreamError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka.admin import TopicMetadata

Offsets = dict[str, dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\Z")], int]]
"""topic → partition → the next offset to read. Partitions are text, as in JSON."""


_OUTPUTS = re.compile(r"__.*|.*metrics-(?:agg|table|events|ledger|dead|shards)")
"""Nothing selects these: Kafka's own topics and the outputs of aggregators, with any prefix."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The `topic`, or some `partitions` of it, or every topic whose whole name matches `pattern`.

    The topics `otlp`, with OTLP metrics, are read in addition. New topics that match a pattern, and new partitions of a
    topic, are read, too. With `partitions`, nothing is added.

    Raises:
        ConfigError: the pattern, a partition or an OTLP topic is invalid, or two that exclude each other are given.
    """

    topic: str
    pattern: str | None = None
    partitions: tuple[int, ...] | None = None
    otlp: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.pattern is not None and self.partitions is not None:
            raise ConfigError("--partitions", self.partitions, "leave it out with --topic-pattern, or leave that out")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                remedy = f"give a regular expression of whole names, as in metrics-.* ({error})"
                raise ConfigError("--topic-pattern", self.pattern, remedy) from error
        if self.partitions is not None and (not self.partitions or min(self.partitions) < 0):
            raise ConfigError("--partitions", self.partitions, "give the numbers of partitions, as in 0,2")
        for name in self.otlp:
            if self.partitions is not None:
                raise ConfigError("--partitions", self.partitions, "leave it out with --otlp-topic, or leave that out")
            if name == self.topic or _OUTPUTS.fullmatch(name) or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
                remedy = f"give the name of a topic of OTLP metrics, not {self.topic} or an output of the aggregator"
                raise ConfigError("--otlp-topic", name, remedy)

    def reads(self, topic: str, partition: int) -> bool:
        """Return True if a partition is read."""
        if topic in self.otlp:
            return True
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None and _OUTPUTS.fullmatch(topic) is None
        return topic == self.topic and (self.partitions is None or partition in self.partitions)

    def among(self, topics: Mapping[str, TopicMetadata]) -> dict[str, list[int]]:
        """Return the partitions that are read of these topics, by name: topic → partitions."""
        read = {t: [p for p in sorted(found.partitions) if self.reads(t, p)] for t, found in sorted(topics.items())}
        return {topic: partitions for topic, partitions in read.items() if partitions}

    def require_all(self, read: Mapping[str, Collection[int]]) -> None:
        """Require that all that is named exists. `read` are the partitions that are read, topic → partitions.

        Raises:
            ConfigError: no topic matches the pattern, or a named partition or an OTLP topic does not exist.
            TallystreamError: the topic does not exist.
        """
        for name in self.otlp:
            if name not in read:
                raise ConfigError("--otlp-topic", name, "the topic does not exist, or has no partition yet: create it")
        if not read.keys() - set(self.otlp) and self.pattern is not None:
            raise ConfigError("--topic-pattern", self.pattern, "no topic matches: create one, or correct the pattern")
        missing = sorted(set(self.partitions or ()) - set(read.get(self.topic, ())))
        if missing:
            raise ConfigError("--partitions", missing, f"{self.topic} does not have them: name existing ones")
        if not read.keys() - set(self.otlp):
            raise TallystreamError(f"topic {self.topic}: it does not exist, or has no partition yet.")
