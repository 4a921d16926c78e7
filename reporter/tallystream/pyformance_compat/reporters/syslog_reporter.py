"""The reporter to syslog: one JSON object for each report."""

from __future__ import annotations

import json
import logging
import math
import socket
from logging.handlers import SysLogHandler
from typing import TYPE_CHECKING

from tallystream.pyformance_compat.reporters.reporter import Reporter

if TYPE_CHECKING:
    from tallystream.pyformance_compat._clock import Clock
    from tallystream.pyformance_compat._registry import MetricsRegistry

DEFAULT_SYSLOG_ADDRESS = "/dev/log"
DEFAULT_SYSLOG_SOCKTYPE = socket.SOCK_DGRAM
DEFAULT_SYSLOG_FACILITY = SysLogHandler.LOG_USER


class _Handler(SysLogHandler):
    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        raise  # noqa: PLE0704 - called while an exception is handled: the reporter logs and counts it


class SysLogReporter(Reporter):
    """Logs each report as `{"KEY.ATTRIBUTE": value, …, "timestamp": epoch seconds}`; NaN and infinity become null.

    Each reporter has its own logger, which has no other handlers.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        tag: the start of each message.
        address, socktype, facility: as in `logging.handlers.SysLogHandler`.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 5,
        tag: str | None = "pyformance",
        clock: Clock | None = None,
        address: str | tuple[str, int] = DEFAULT_SYSLOG_ADDRESS,
        socktype: socket.SocketKind = DEFAULT_SYSLOG_SOCKTYPE,
        facility: int = DEFAULT_SYSLOG_FACILITY,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        handler = _Handler(address=address, facility=facility, socktype=socktype)
        handler.append_nul = False
        if tag:
            handler.ident = f"{tag}: "
        self.logger = logging.Logger("pyformance", logging.INFO)  # noqa: LOG001 - not shared with other reporters
        self.logger.addHandler(handler)

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Log one report.

        Raises:
            OSError: syslog does not accept it.
        """
        values, seconds = self._values(registry, timestamp)
        shown = {
            f"{key}.{attribute}": None if isinstance(value, float) and not math.isfinite(value) else value
            for key, attributes in values.items()
            for attribute, value in attributes.items()
        }
        # Without arguments, logging does not format the message.
        self.logger.info(json.dumps({**shown, "timestamp": seconds}, sort_keys=True, default=str))
