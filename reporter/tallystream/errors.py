"""The errors that Tallystream raises. Each message is one sentence that contains what to do."""

from __future__ import annotations

import threading


class TallystreamError(Exception):
    """The base class of the errors that Tallystream defines."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to create it in another process. By default its message would be passed to `__init__`."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


def is_of_a_signal(error: BaseException) -> bool:
    """Return whether a handler of a signal may have raised the error, in the main thread, to end the process.

    Code that calls functions of the application skips or reports all their other errors. Some are no `Exception`:
    `asyncio.CancelledError`, gevent's `Timeout`, `SystemExit`.
    """
    is_end = isinstance(error, KeyboardInterrupt | SystemExit)
    return is_end and threading.current_thread() is threading.main_thread()


class ConfigError(TallystreamError):
    """A setting that can't be used. Commands print it and exit with code 2.

    Args:
        field: the option, argument or environment variable that can't be used.
        value: its value; for a secret, pass `"***"`. If the value of an option or variable is empty, the message says
            that it is not set.
        remedy: what to do, as the end of the sentence.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        setting = field.startswith("--") or field.isupper()
        problem = f"{field} is not set" if setting and value in ("", None) else f"{field}: {value!r} can't be used"
        super().__init__(f"{problem}; {remedy}.")
        self.field = field
        self.value = value
        self.remedy = remedy


class DuplicateReporterError(ConfigError):
    """Another reporter, or another instance ID, reports the registry to the topic, so it would be counted twice."""
