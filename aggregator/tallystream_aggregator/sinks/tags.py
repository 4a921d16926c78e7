"""Names of tags that are ours in a store, and what a user's tag of such a name is called there."""

from __future__ import annotations

RESERVED = frozenset({"app", "metric_type"})
"""The tags that every sum has beside its own."""

_PREFIX = "tag_"


def free(name: str, reserved: frozenset[str] = RESERVED) -> str:
    """Return a user's tag name as the store has it: another one, where the name is ours.

    What already has the prefix (tag_app) gets one more, so that no two names meet.
    """
    bare = name
    while bare.startswith(_PREFIX):
        bare = bare[len(_PREFIX) :]
    return _PREFIX + name if bare in reserved else name
