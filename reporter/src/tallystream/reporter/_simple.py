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
    def _write(self, metrics: list[Metric]) -> None:
        """Write one snapshot: the values of the whole process."""

    def _open(self) -> None:
        """Nothing to acquire."""

    def _report(self) -> bool:
        self._write(self.registry.snapshot())
        return False

    def _attend(self) -> bool:
        return False

    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:  # noqa: ARG002 - both matter to Kafka alone
        try:
            self._report()
        except Exception as error:  # noqa: BLE001 - the caller learns it from the result
            self._error("a report failed", error)
            return False
        return True

    def _close(self) -> None:
        """Nothing to release."""

    def _leave_to_parent(self) -> None:
        """Nothing is the parent's."""
