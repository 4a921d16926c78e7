"""Where a new table begins: the forms of --from."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.start_position import At, parse_start

TEN_O_CLOCK = 1_795_168_800_000
"""2026-11-20T10:00 UTC in epoch ms"""


@pytest.mark.parametrize("word", ["earliest", "latest", "group"])
def test_a_word_is_taken_as_it_is(word: str) -> None:
    """The three words need no parsing."""
    assert parse_start(word) == word


@pytest.mark.parametrize("text", ["2026-11-20T10:00", "2026-11-20 10:00:00", "2026-11-20T12:00+02:00"])
def test_a_time_is_in_utc_unless_it_says_otherwise(text: str) -> None:
    """A time without an offset does not depend on the machine's zone."""
    assert parse_start(text) == At(TEN_O_CLOCK)


def test_a_time_of_the_ledger_is_told_from_a_time_of_the_topic() -> None:
    """The ledger's form asks for a batch's end, not for a record's time."""
    assert parse_start("ledger:2026-11-20T10:00") == At(TEN_O_CLOCK, ledger=True)


def test_offsets_are_by_topic_and_partition() -> None:
    """The form that Spark and its offset log use."""
    assert parse_start('{"metrics":{"0":123}}') == {"metrics": {"0": 123}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "{", '{"metrics":3}', "xledger:2026-11-20T10:00", "ledger:", "Latest"),
        *('{"\udcff":{}}', '{"x":' + "[" * 100_000),
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode(),
)
def test_anything_else_is_one_sentence_with_the_forms(text: str) -> None:
    """The sentence names the option and shows what it takes."""
    with pytest.raises(ConfigError, match=r"^--from.*earliest, latest, group"):
        parse_start(text)
