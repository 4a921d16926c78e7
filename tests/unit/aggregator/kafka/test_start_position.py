"""The forms of `--from`."""

from __future__ import annotations

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.start_position import At, parse_start

TEN_O_CLOCK = 1_795_168_800_000
"""2026-11-20T10:00 UTC in epoch ms"""


@pytest.mark.parametrize("word", ["earliest", "latest", "group"])
def test_the_three_words_are_start_positions(word: str) -> None:
    """They are returned unchanged."""
    assert parse_start(word) == word


@pytest.mark.parametrize("text", ["2026-11-20T10:00", "2026-11-20 10:00:00", "2026-11-20T12:00+02:00"])
def test_a_time_without_an_offset_is_in_utc(text: str) -> None:
    """It does not depend on the machine's time zone."""
    assert parse_start(text) == At(TEN_O_CLOCK)


def test_a_time_may_be_one_of_the_ledger() -> None:
    """It means the end of a batch instead of the time of a record."""
    assert parse_start("ledger:2026-11-20T10:00") == At(TEN_O_CLOCK, ledger=True)


def test_offsets_are_by_topic_and_partition() -> None:
    """Spark's offset log has the same form."""
    assert parse_start('{"metrics":{"0":123}}') == {"metrics": {"0": 123}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "{", '{"metrics":3}', "xledger:2026-11-20T10:00", "ledger:", "Latest"),
        *('{"\udcff":{}}', '{"x":' + "[" * 100_000),
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode(),
)
def test_the_error_of_another_text_has_all_forms(text: str) -> None:
    """It names the option."""
    with pytest.raises(ConfigError, match=r"^--from.*earliest, latest, group"):
        parse_start(text)
