"""The decoders of untrusted bytes, which raise one error for all invalid input."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from support.malformed import UNDECODABLE
from tallystream import record
from tallystream.decoding import json_decoder, msgpack_decoder

ROOT = Path(__file__).parents[3]
OTHERS = {
    "reporter/tallystream/decoding.py": "the decoders themselves",
    "aggregator/tallystream_aggregator/table/records/decode.py": "falls back to a careful reader on any error",
    "aggregator/tallystream_aggregator/table/rows.py": "reads a record again that the table has applied",
}
"""The modules that may call msgspec's decoders directly, with the reason."""


class Row(msgspec.Struct):
    """A row with one required field."""

    number: int
    app: str = ""


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_invalid_json_is_a_decode_error(value: bytes) -> None:
    """Malformed JSON, another structure, invalid UTF-8 and deep nesting all raise DecodeError."""
    with pytest.raises(msgspec.DecodeError):
        json_decoder(Row)(value)


def test_a_text_with_a_lone_surrogate_is_a_decode_error() -> None:
    """Command line arguments that are not UTF-8 are such texts."""
    with pytest.raises(msgspec.DecodeError):
        json_decoder(Row)('{"number":1,"x":"\udcff"}')


def test_messagepack_that_is_not_utf8_is_a_decode_error() -> None:
    """Invalid UTF-8 in MessagePack, for example in a damaged file, raises DecodeError."""
    with pytest.raises(msgspec.DecodeError):
        msgpack_decoder(str)(b"\xa2\xff\xff")
    assert msgpack_decoder(str)(b"\xa2ab") == "ab"


def test_an_invalid_field_is_named() -> None:
    """The ValidationError of msgspec, which names the field, is not replaced."""
    with pytest.raises(msgspec.ValidationError, match=r"\$\.number"):
        json_decoder(Row)(b'{"number":"x"}')
    assert json_decoder(Row)(b'{"number":3,"other":[]}') == Row(3)


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_record_decode_raises_the_documented_error(value: bytes) -> None:
    """`record.decode` raises one error for all invalid records, and it is a ValueError."""
    with pytest.raises(msgspec.DecodeError):
        record.decode(value)


def test_no_other_module_calls_msgspecs_decoders() -> None:
    """All modules use these decoders, since msgspec's own raise further errors."""
    direct = re.compile(r"msgspec\.(?:json|msgpack)\.(?:Decoder|decode)\b")
    packages = [ROOT / name for name in ("reporter", "aggregator", "dashboards", "compose")]
    found = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in package.rglob("*.py")
        if direct.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(OTHERS)
