"""What the reporters have in common that write a snapshot and are done with it: all but the one to Kafka."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tallystream.reporter.scheduled import ScheduledReporter

if TYPE_CHECKING:
    from tallystream.reporter.record import Metric


class SimpleReporter(ScheduledReporter):
    """Writes each snapshot at once; what `_write` raises is logged and counted, and the next report still happens."""

    @abstractmethod
    def _write(self, metrics: list[Metric]) -> int:
        """Write one snapshot, the values of the whole process, and return how many bytes that were."""

    def _open(self) -> None:
        """Nothing to acquire."""

    def _report(self) -> bool:
        begin = self._monotonic()
        size = self._write(self.registry.snapshot())
        if self._own:
            self._own.sent.inc()
            self._own.bytes.inc(size)
            self._own.duration.update(self._monotonic() - begin)
        return False

    def _attend(self) -> bool:
        return False

    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:  # noqa: ARG002 - both matter to Kafka alone
        self._report()
        return True

    def _close(self) -> None:
        """Nothing to release."""

    def _leave_to_parent(self) -> None:
        """Nothing is the parent's."""
