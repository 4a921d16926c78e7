"""The result of a check, and the limit of its time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


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
    if isinstance(error, TimeoutError):
        return failed(check, str(error), "see whether the disk or the server hangs, and run the command again")
    return failed(check, str(error).rstrip(".") or type(error).__name__)


def within(seconds: float, fetch: Callable[[], T]) -> T:
    """Return the result of `fetch`, which runs in a thread of its own.

    Raises:
        TimeoutError: it took longer than `seconds`. The thread continues, and ends with the process at the latest.
        Exception: what `fetch` raised.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(fetch())
        except Exception as error:  # noqa: BLE001 (it is raised again in the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer in {seconds:g} s")
    return results[0]


def guarded(check: str, seconds: float, findings: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings; if there is an error or no result in `seconds`, one that says so."""
    try:
        return within(seconds, lambda: list(findings()))
    except Exception as error:  # noqa: BLE001 (a check that fails is a finding)
        return [of_error(check, error)]
