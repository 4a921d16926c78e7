"""The encoding of names and tags for InfluxDB."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream_aggregator.sinks.influxdb.sink import RESERVED_KEYS, decode, encode_name, encode_value


@pytest.mark.parametrize("plain", ["flights.processed", "two words", "a,b=c", "größe 🦀", 'say "hi"', "app-1"])
def test_plain_text_is_not_changed(plain: str) -> None:
    """Grafana shows the names that were reported."""
    assert encode_name(plain) == encode_value(plain) == plain


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(sorted(RESERVED_KEYS)))
def test_every_text_is_decoded_as_it_was_encoded(text: str) -> None:
    """This holds for both encodings."""
    assert decode(encode_name(text)) == text
    assert decode(encode_value(text)) == text


@given(st.text("%_#\\\n\x00time0A5F", max_size=6))
def test_the_code_has_no_special_characters(text: str) -> None:
    """It has no control character and no backslash, and is never empty. A name is not a reserved one."""
    for stored in (encode_name(text), encode_value(text)):
        assert stored
        assert not any(character < " " or character in "\\\x7f" for character in stored)
    assert encode_name(text)[0] not in "_#"
    assert encode_name(text) not in RESERVED_KEYS
