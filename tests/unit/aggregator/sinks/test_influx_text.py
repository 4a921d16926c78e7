"""The encoding of names and tags for InfluxDB: reversible, and invisible where nothing is special."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_aggregator.sinks.influxdb.text import RESERVED_KEYS, decode, encode_name, encode_value


@pytest.mark.parametrize("plain", ["flights.processed", "two words", "a,b=c", "größe 🦀", 'say "hi"', "app-1"])
def test_plain_text_stays_as_it_is(plain: str) -> None:
    """What Grafana shows is what was reported."""
    assert encode_name(plain) == encode_value(plain) == plain


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(sorted(RESERVED_KEYS)))
def test_every_text_comes_back(text: str) -> None:
    """Decoding undoes both encodings, whatever the text."""
    assert decode(encode_name(text)) == text
    assert decode(encode_value(text)) == text


@given(st.text("%_#\\\n\x00time0A5F", max_size=6))
def test_what_is_stored_is_harmless(text: str) -> None:
    """No control character, no backslash, never empty; a name is none that InfluxDB keeps for itself."""
    for stored in (encode_name(text), encode_value(text)):
        assert stored
        assert not any(character < " " or character in "\\\x7f" for character in stored)
    assert encode_name(text)[0] not in "_#"
    assert encode_name(text) not in RESERVED_KEYS
