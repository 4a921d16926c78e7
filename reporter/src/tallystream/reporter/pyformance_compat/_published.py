"""The registry behind the face: what the reporters take their snapshots from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tallystream.reporter._names import check_name, check_tags, label
from tallystream.reporter._since import identity_of
from tallystream.reporter.pyformance_compat._log import log
from tallystream.reporter.registry import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.reporter import record

UNMATCHED = "(unmatched)"
"""The record's name of the key "", under which a RegexRegistry has what its pattern does not match."""

Key = tuple[Any, tuple[tuple[str, str], ...]]
"""(key, sorted tags)"""


class Member(Protocol):
    """What the metric classes offer to the registry that they are in."""

    def tallystream_join(self, name: str, earlier: Any) -> None:
        """Belong to a registry as `name`, and count on from what `leave` of the one before returned, or None."""

    def tallystream_leave(self) -> Any:
        """Belong to no registry any more; return what the next one of this name must count on from."""

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the present value in the record's form, None where there is nothing to report."""

    def tallystream_start_anew(self) -> None:
        """Forget everything, with new locks: for the child of a fork."""


class PublishedRegistry(MetricRegistry):
    """A registry whose snapshots have, beside metrics of its own, those of a MetricsRegistry.

    Args:
        app: the application's name.
        members: gives the metrics at present, with their keys.
        start_anew: forgets everything, in the child of a fork.
    """

    def __init__(
        self, app: str, members: Callable[[], Iterable[tuple[Key, Member]]], start_anew: Callable[[], None]
    ) -> None:
        super().__init__(app)
        self._members, self._start_members_anew = members, start_anew

    def snapshot(self, *, views: bool = True) -> list[record.Metric]:
        """Return the value of every metric that has one, in the record's form, whatever `views` says of the members.

        A metric that can't be read, or whose name the record does not take, is left out with a line in the log.
        """
        own = super().snapshot(views=views)
        known = {identity_of(metric) for metric in own}
        for key, member in self._members():
            value = _read(key, member)
            if value is None:
                continue
            if identity_of(value) in known:
                what = label(value.name, value.tags)
                log.warning("%s is left out: there is another %s of this name and tags", what, value.type)
                continue
            known.add(identity_of(value))
            own.append(value)
        return own

    def start_anew(self) -> None:
        """Let every metric start anew, with new locks: for the child of a fork, before it has threads."""
        super().start_anew()
        self._start_members_anew()


def _read(key: Key, member: Member) -> record.Metric | None:
    name = str(key[0]) or UNMATCHED
    try:
        return member.tallystream_read(check_name("the name of a metric", name), check_tags(name, dict(key[1])))
    except Exception as error:  # noqa: BLE001 - the application's functions and numbers; its neighbours are reported
        log.warning("%s is left out of this snapshot: %s: %s", label(name, dict(key[1])), type(error).__name__, error)
        return None
