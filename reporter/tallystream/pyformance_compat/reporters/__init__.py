"""The reporters, each imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream.pyformance_compat.reporters.carbon_reporter import CarbonReporter, UdpCarbonReporter
    from tallystream.pyformance_compat.reporters.console_reporter import ConsoleReporter
    from tallystream.pyformance_compat.reporters.csv_reporter import CsvReporter
    from tallystream.pyformance_compat.reporters.influx import InfluxReporter
    from tallystream.pyformance_compat.reporters.reporter import Reporter
    from tallystream.pyformance_compat.reporters.syslog_reporter import SysLogReporter

__all__ = [
    "CarbonReporter",
    "ConsoleReporter",
    "CsvReporter",
    "InfluxReporter",
    "Reporter",
    "SysLogReporter",
    "UdpCarbonReporter",
]

_MODULES = {
    "CarbonReporter": "carbon_reporter",
    "ConsoleReporter": "console_reporter",
    "CsvReporter": "csv_reporter",
    "InfluxReporter": "influx",
    "Reporter": "reporter",
    "SysLogReporter": "syslog_reporter",
    "UdpCarbonReporter": "carbon_reporter",
}


_NOT_OFFERED = ("HostedGraphiteReporter", "NewRelicReporter", "OpenTSDBReporter")


def __getattr__(name: str) -> Any:
    if name in _NOT_OFFERED:
        raise ImportError(
            f"{name} is not offered by tallystream.pyformance_compat: "
            "report to Kafka, InfluxDB or Graphite, or subclass Reporter."
        )
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
