"""The exit codes of all commands: the same for the same thing. docs/running.md has them with examples."""

from __future__ import annotations

from tallystream.errors import TallystreamError

GOOD = 0
"""It is done, or shown, and all of it is well."""
BAD = 1
"""It failed, or something is not well."""
UNUSABLE = 2
"""A setting can't be used. Of `lag`, as in monitoring checks: a group is ERR."""
UNKNOWN = 3
"""It is not known: the store can't be read, or has nothing of what was asked for, or not enough."""
INTERRUPTED = 130
"""Ctrl-C or SIGTERM ended it before it was done."""


class NotKnownError(TallystreamError):
    """A command prints it and exits with the code of what is not known."""
