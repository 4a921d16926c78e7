"""The errors that a user of Tallystream may meet: each message is one sentence that says what to do."""

from __future__ import annotations


class TallystreamError(Exception):
    """Base of every error that Tallystream raises on purpose."""


class ConfigError(TallystreamError):
    """A setting that can't be used. Commands print it and exit with code 2.

    Args:
        field: the option, argument or environment variable at fault.
        value: what it was set to. A secret's value is never passed here: pass `"***"`. An option or a variable whose
            value is empty is not set, and the message says so.
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
    """Another reporter, or another instance ID, reports the registry to the same topic: it would be counted twice."""
