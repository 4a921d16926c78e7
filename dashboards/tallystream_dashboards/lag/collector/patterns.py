"""Which consumer groups are watched."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Patterns:
    """Shell patterns (`*`, `?`, `[a-z]`) over whole group names, case-sensitive; an exclusion beats an inclusion."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def match(self, group: str) -> bool:
        """Say whether `group` is to be watched."""
        wanted = any(fnmatchcase(group, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(group, pattern) for pattern in self.exclude)
