"""The messages of ConfigError."""

from __future__ import annotations

import pytest

from tallystream import ConfigError


@pytest.mark.parametrize("value", ["", None])
@pytest.mark.parametrize("field", ["INFLUXDB_TOKEN", "TALLYSTREAM_PAGE_PASSWORD_FILE", "--bucket"])
def test_an_empty_variable_or_option_is_not_set(field: str, value: str | None) -> None:
    """For an empty variable or option, the message says that it is not set."""
    assert str(ConfigError(field, value, "set it")) == f"{field} is not set; set it."


@pytest.mark.parametrize(("field", "value"), [("app", ""), ("--port", 0), ("INFLUXDB_ORG", "a b"), ("--kafka", "***")])
def test_any_other_value_is_in_the_message(field: str, value: object) -> None:
    """All other values are shown, also empty arguments of a Python call."""
    assert str(ConfigError(field, value, "give another")) == f"{field}: {value!r} can't be used; give another."
