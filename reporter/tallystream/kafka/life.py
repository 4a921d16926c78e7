"""One life of a registry at one destination, its parts, and the records on their way."""

from __future__ import annotations

import msgspec

from tallystream.baselines import Values
from tallystream.kafka.parts import Parts
from tallystream.record import Metric, Snapshot


class Outgoing(msgspec.Struct, eq=False):
    """A record on its way: the snapshot, as published, and the values of the whole process that it stands for.

    Where two records of one part have the same object as `layout`, they are of the same metrics in the same order.
    """

    snapshot: Snapshot
    value: bytes
    values: list[Metric]
    layout: object


class Part(msgspec.Struct):
    """What is known of one part."""

    seq: int = 0
    acknowledged_seq: int = 0
    closed: bool = False
    under_way: Outgoing | None = None


class Life(msgspec.Struct):
    """One life. All its records are of one `app`.

    `base` is what earlier lives had counted. `unknown` has the values of failed deliveries that may have arrived, until
    a later record with the same metric is acknowledged. `outgrown` says that its metrics need other parts.
    """

    id: str
    app: str
    base: Values
    split: Parts
    prev_ms: int | None = None
    refused: bool = False
    outgrown: bool = False
    unknown: Values = {}
    parts: dict[int, Part] = {}

    @property
    def closed(self) -> bool:
        """Whether every part's final record was acknowledged, or no record was made."""
        return all(part.closed for part in self.parts.values())
