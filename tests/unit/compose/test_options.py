"""Options that several commands have, or that are parsed."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError
from tallystream_cli.options import parse_partitions


@pytest.mark.parametrize(("text", "partitions"), [(None, None), ("0", (0,)), ("2,0, 2", (0, 2))])
def test_partitions_are_numbers_with_commas(text: str | None, partitions: tuple[int, ...] | None) -> None:
    """They may come in any order, and more than once."""
    assert parse_partitions(text) == partitions


@pytest.mark.parametrize("text", ["", "a", "0-2", "0,,1"])
def test_the_error_of_invalid_partitions_has_an_example(text: str) -> None:
    """The text is not a list of numbers."""
    with pytest.raises(ConfigError, match=r"^--partitions.*as in 0,2"):
        parse_partitions(text)
