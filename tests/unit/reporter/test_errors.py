"""What a ConfigError says."""

from __future__ import annotations

import pytest

from tallystream import ConfigError


@pytest.mark.parametrize("value", ["", None])
@pytest.mark.parametrize("field", ["INFLUXDB_TOKEN", "TALLYSTREAM_PAGE_PASSWORD_FILE", "--bucket"])
def test_an_empty_variable_or_option_is_not_set(field: str, value: str | None) -> None:
    """An empty value of the environment or of an option is said to be what it is: not set."""
    assert str(ConfigError(field, value, "set it")) == f"{field} is not set; set it."


@pytest.mark.parametrize(("field", "value"), [("app", ""), ("--port", 0), ("INFLUXDB_ORG", "a b"), ("--kafka", "***")])
def test_any_other_value_is_named(field: str, value: object) -> None:
    """An argument in Python may be empty on purpose; every other value is shown as it is."""
    assert str(ConfigError(field, value, "give another")) == f"{field}: {value!r} can't be used; give another."
