"""The result of a check."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from confluent_kafka import KafkaException

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Finding(NamedTuple):
    """The result of one check: what was checked, what was found, and what to do, empty if nothing is to do.

    A `warning` does not keep the system from working. What `failed` keeps a command from working, or loses data.
    """

    status: Literal["ok", "warning", "failed", "not checked"]
    check: str
    found: str
    remedy: str = ""


ok, warning, failed, not_checked = (
    partial(Finding, "ok"),
    partial(Finding, "warning"),
    partial(Finding, "failed"),
    partial(Finding, "not checked"),
)


def of_error(check: str, error: BaseException) -> Finding:
    """Return the finding of a check that raised an error."""
    if isinstance(error, ConfigError):
        setting = f"{error.field} is not set" if error.value in ("", None) else f"{error.field}: {error.value}"
        return failed(check, setting, error.remedy)
    if isinstance(error, KafkaException):
        return failed(check, f"a request failed: {error.args[0].str()}", "look at the logs of the brokers")
    return failed(check, str(error).rstrip(".") or type(error).__name__)


def guarded(check: str, findings: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings; if there is an error, one that says so."""
    try:
        return list(findings())
    except Exception as error:  # noqa: BLE001 (a check that fails is a finding)
        return [of_error(check, error)]
