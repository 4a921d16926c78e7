"""A registry that takes parts of what it is asked for as the key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tallystream.reporter.pyformance_compat._clock import WALL, Clock
from tallystream.reporter.pyformance_compat._metrics_registry import M, MetricsRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class RegexRegistry(MetricsRegistry):
    r"""A registry that takes the groups of a pattern for the key: what they match, with `/` between.

    With `^/api/(\w+)/\d+/(\w+)?$`, /api/users/1/edit and /api/users/2/edit are both users/edit. What the pattern
    does not match has the key "".

    Args:
        pattern: a regular expression.
        clock: as in MetricsRegistry.
    """

    def __init__(self, pattern: str | None = None, clock: Clock = WALL) -> None:
        super().__init__(clock)
        self.pattern = re.compile("^$" if pattern is None else pattern)

    def _get(self, kind: type[M], key: str, tags: Mapping[str, object] | None, make: Callable[[], M]) -> M:
        groups = (group for match in self.pattern.finditer(key) for group in match.groups() if group)
        return super()._get(kind, "/".join(groups), tags, make)
