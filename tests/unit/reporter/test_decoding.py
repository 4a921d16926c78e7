"""The one way in which bytes from outside are decoded: whatever is wrong with them, one kind of error says so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from support.undecodable import UNDECODABLE
from tallystream import record
from tallystream.decoding import json_decoder, msgpack_decoder

ROOT = Path(__file__).parents[3]
OTHERS = {
    "reporter/tallystream/decoding.py": "the decoders themselves",
    "aggregator/tallystream_aggregator/table/decode.py": "falls back to a careful reader on any error",
    "aggregator/tallystream_aggregator/spark/catch_up/encoding.py": "reads what this process's Spark just wrote",
    "aggregator/tallystream_aggregator/spark/catch_up/source.py": "reads what this process's Spark just wrote",
}
"""The modules that may call msgspec's decoders directly, with the reason."""


class Row(msgspec.Struct):
    """A row with one required field."""

    number: int
    app: str = ""


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_every_undecodable_json_is_a_decode_error(value: bytes) -> None:
    """Malformed, of another shape, not UTF-8 or nested too deep: one exception covers all."""
    with pytest.raises(msgspec.DecodeError):
        json_decoder(Row)(value)


def test_a_text_with_half_a_character_is_a_decode_error() -> None:
    """An argument of a command line that is not UTF-8 arrives as such a text."""
    with pytest.raises(msgspec.DecodeError):
        json_decoder(Row)('{"number":1,"x":"\udcff"}')


def test_messagepack_that_is_not_utf8_is_a_decode_error() -> None:
    """A file of ours that was damaged."""
    with pytest.raises(msgspec.DecodeError):
        msgpack_decoder(str)(b"\xa2\xff\xff")
    assert msgpack_decoder(str)(b"\xa2ab") == "ab"


def test_a_wrong_field_is_named() -> None:
    """The more precise error of msgspec is left as it is."""
    with pytest.raises(msgspec.ValidationError, match=r"\$\.number"):
        json_decoder(Row)(b'{"number":"x"}')
    assert json_decoder(Row)(b'{"number":3,"other":[]}') == Row(3)


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_a_record_that_cannot_be_decoded_is_the_documented_error(value: bytes) -> None:
    """`record.decode` promises one error, and it is a ValueError."""
    with pytest.raises(msgspec.DecodeError):
        record.decode(value)


def test_no_other_module_calls_msgspecs_decoders() -> None:
    """A decoder of its own would raise errors that its callers do not expect."""
    direct = re.compile(r"msgspec\.(?:json|msgpack)\.(?:Decoder|decode)\b")
    packages = [ROOT / name for name in ("reporter", "aggregator", "dashboards", "compose")]
    found = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in package.rglob("*.py")
        if direct.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(OTHERS)
