"""Which tags the sums have, by the options of the aggregator: docs/table.md, rule 12."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream_aggregator.verify.decode import Identity


@dataclass(frozen=True, slots=True)
class Tags:
    """The sums lack the tags `dropped`. If `kept` is not None, they have no other tags."""

    dropped: frozenset[str] = frozenset()
    kept: frozenset[str] | None = None

    def sum_of(self, identity: Identity) -> Identity:
        """Return the identity of the sum that a metric is part of."""
        app, kind, name, tags = identity
        return app, kind, name, tuple(tag for tag in tags if self._has(tag[0]) or _needs(kind, tag[0]))

    def _has(self, tag: str) -> bool:
        return tag not in self.dropped and (self.kept is None or tag in self.kept)


def _needs(kind: str, tag: str) -> bool:
    """Return whether the sum would mean nothing without this tag."""
    return (kind, tag) in (("position", "topic"), ("position", "partition"), ("buckets", "bounds"))
