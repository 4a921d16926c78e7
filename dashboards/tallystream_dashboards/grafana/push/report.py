"""The output of a push: a line for each resource, its differences, and the result."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.push.model import WRITES, Action, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SIGNS = {Kind.CREATE: "+", Kind.UPDATE: "~", Kind.REMOVE: "-", Kind.UNCHANGED: "=", Kind.KEPT: "="}
MAX_DIFFERENCES = 12
"""How many differences of one resource are printed."""


def lines(actions: Iterable[Action], *, differences: bool = False) -> Iterator[str]:
    """Yield a line for each resource, and its differences if requested."""
    for action in actions:
        reason = f" ({action.reason})" if action.reason else ""
        yield f"{SIGNS.get(action.kind, '!')} {action.kind:<9} {action.resource}{reason}"
        if not differences or action.kind in (Kind.UNCHANGED, Kind.REMOVE):
            continue
        for change in action.changes[:MAX_DIFFERENCES]:
            yield f"      {change}"
        if len(action.changes) > MAX_DIFFERENCES:
            yield f"      … and {len(action.changes) - MAX_DIFFERENCES} more differences"


def summary(actions: Sequence[Action], *, dry_run: bool) -> str:
    """Return the last line: the number of resources by what was done, or would be done."""
    kinds = Counter(action.kind for action in actions)
    if not any(kinds[kind] for kind in WRITES):
        return f"{len(actions)} resources, nothing to do."
    words = {Kind.CREATE: "created", Kind.UPDATE: "updated", Kind.REMOVE: "removed"}
    words |= {Kind.UNCHANGED: "unchanged", Kind.KEPT: "kept"}
    counts = ", ".join(f"{kinds[kind]} {word}" for kind, word in words.items() if kinds[kind])
    return f"Nothing was written. Result of a push: {counts}." if dry_run else f"Done: {counts}."


def refusal(actions: Iterable[Action]) -> str:
    """Return why the push is refused, in one line; empty if it is not."""
    stopping = [action for action in actions if action.kind in (Kind.REFUSED, Kind.BLOCKED)]
    if not stopping:
        return ""
    reasons = "; ".join(f"{action.resource}: {action.reason}" for action in stopping)
    message = f"Nothing was pushed. {reasons}."
    if any(action.kind is Kind.REFUSED for action in stopping):
        message += (
            " --overwrite overwrites what a person changed, --keep-changed keeps it and pushes the rest, "
            "and --dry-run shows the differences."
        )
    return message
