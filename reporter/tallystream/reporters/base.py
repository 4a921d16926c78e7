"""What each kind of reporter does in its own way; when it does so is `scheduled.py`'s."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream.deadline import Deadline


class Reports(ABC):
    """One report, its beginning and its end. Called by one thread at a time."""

    @abstractmethod
    def _open(self) -> None:
        """Acquire what is needed to report; safe to call again. May raise ConfigError."""

    @abstractmethod
    def _report(self) -> bool:
        """Make one report without waiting for it; return whether something is under way that needs attention."""

    @abstractmethod
    def _attend(self) -> bool:
        """Look after what is under way; return whether there is still something."""

    @abstractmethod
    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:
        """Make one report and wait for it; return whether it arrived."""

    @abstractmethod
    def _close(self, deadline: Deadline) -> None:
        """Release what `_open` acquired; wait until the deadline at most."""

    @abstractmethod
    def _rest(self, deadline: Deadline) -> None:
        """Let go of what a fork would break; before a fork, while no report is made.

        Wait until the deadline at most.
        """

    @abstractmethod
    def _leave_to_parent(self) -> None:
        """Let go of everything that belongs to the parent process, without touching it; in the child of a fork."""
