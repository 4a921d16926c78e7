"""The errors that Tallystream raises. Each message is one sentence that contains what to do."""

from __future__ import annotations


class TallystreamError(Exception):
    """The base class of the errors that Tallystream defines."""


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
