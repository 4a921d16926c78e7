"""Which tags the sums have. The rows of the table always have all tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

Tags = tuple[tuple[str, str], ...]

POSITION_TAGS = frozenset({"topic", "partition"})
BUCKET_SUFFIX, BUCKET_TAG = ".bucket", "le"
"""A counter with this suffix is a bucket of an OTLP histogram (docs/otlp.md), and the tag has its bound."""


class SumTags(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metrics that differ only in tags that the sums do not have are added in one sum.

    The sums lack the tags `drop`. If `keep` is not None, they have only those tags. A tag without which a sum means
    nothing is always kept: `topic` and `partition` of a position, and `le` of a bucket.
    """

    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None

    @property
    def has_all(self) -> bool:
        """Whether the sums have all tags, so each metric has a sum of its own."""
        return not self.drop and self.keep is None

    def of(self, name: str, kind: str, tags: Tags) -> Tags:
        """Return the tags of the sum of a metric."""
        return tuple(tag for tag in tags if self._has(tag[0]) or _is_required(name, kind, tag[0]))

    def __str__(self) -> str:
        if self.keep is not None:
            return f"--keep-tags {','.join(self.keep) or repr('')}"
        return " ".join(f"--drop-tag {tag}" for tag in self.drop) or "all tags"

    def _has(self, tag: str) -> bool:
        return tag not in self.drop if self.keep is None else tag in self.keep


def _is_required(name: str, kind: str, tag: str) -> bool:
    if kind == "position":
        return tag in POSITION_TAGS
    return kind == "counter" and tag == BUCKET_TAG and name.endswith(BUCKET_SUFFIX)


def parse_sum_tags(drop: Sequence[str] | None, keep: str | None) -> SumTags | None:
    """Return the tags for the values of --drop-tag and --keep-tags, or None if neither is given.

    Raises:
        ConfigError: both are given, or a name is empty.
    """
    if not drop and keep is None:
        return None
    if drop and keep is not None:
        raise ConfigError("--keep-tags", keep, "give it without --drop-tag")
    for option, names in (("--drop-tag", list(drop or ())), ("--keep-tags", (keep or "-").split(","))):
        if not all(names):
            raise ConfigError(option, ",".join(names), "name tags that are not empty, as in region")
    if keep is None:
        return SumTags(drop=tuple(sorted(set(drop or ()))))
    return SumTags(keep=tuple(sorted(set(keep.split(",")) - {""})))
