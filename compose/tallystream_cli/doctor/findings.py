"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Status(StrEnum):
    """The result of a check in one word."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was checked, what was found, and what to do, empty if nothing is to do."""

    status: Status
    check: str
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return the finding of a check that found nothing wrong."""
    return Finding(Status.OK, check, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that does not keep the system from working."""
    return Finding(Status.WARNING, check, found, remedy)


def failed(check: str, found: str, remedy: str = "") -> Finding:
    """Return a finding that keeps a command from working, or that makes it lose data."""
    return Finding(Status.FAILED, check, found, remedy)


def not_checked(check: str, why: str, remedy: str = "") -> Finding:
    """Return the finding of a check that could not be done."""
    return Finding(Status.NOT_CHECKED, check, why, remedy)


def of_error(check: str, error: BaseException) -> Finding:
    """Return the finding of a check that raised an error."""
    if isinstance(error, ConfigError):
        setting = f"{error.field} is not set" if error.value in ("", None) else f"{error.field}: {error.value}"
        return failed(check, setting, error.remedy)
    if isinstance(error, KafkaException):
        return failed(check, str(error.args[0].str()))
    return failed(check, str(error).rstrip(".") or type(error).__name__)


def guarded(check: str, findings: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings; if there is an error, one that says so."""
    try:
        return list(findings())
    except Exception as error:  # noqa: BLE001 (a check that fails is a finding)
        return [of_error(check, error)]
