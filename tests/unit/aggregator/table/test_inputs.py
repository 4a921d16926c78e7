"""The fast reader of the short form agrees with the table's reader on every value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.malformed import ODD, POISON
from tallystream.record import ShortForm
from tallystream_aggregator.table.records.decode import MAX_DEPTH, DecodedSnapshot, read_short_form, read_value

USUAL = [
    b'{"name":"a","value":17}',
    b'{"name":"a","value":17,"ts":1700000000000}',
    b'{"name": "a", "value": 17, "ts": 17}',
    b'{"name":"b","type":"counter","value":17,"at":0}',
    b'{"name":"b","value":17,"tags":{"zone":"eu"}}',
    '{"name":"größe","value":17,"tags":{"zone":"süd"}}'.encode(),
    b'{"name":"c","value":17,"ts":1.017}',
    b'{"name":"a","value":17,"x":' + b"[" * 60 + b"]" * 60 + b"}",
    b'{"name":"a","value":17,"x":"' + b"y" * 500 + b'"}',
]
MISLEADING = [
    b'{"name":"a","value":017}',
    b'{"name":"a","value":-17}',
    b'{"name":"a","value":17.5}',
    b'{"name":"a","value":17e1}',
    b'{"name":"a","value":17.0}',
    b'{"name":"a","value":9223372036854775808}',
    b'{"name":"a","value":17,"ts":1e999}',
    b'{"name":"a","value":17,"ts":tru}',
    b'{"name":"a","value":17}\n',
    b'{"name":"a","value":17,"x":[1,2:3}',
    b'{"name":"a","value":17}}',
    b'{"name":"a","value":17',
    b'{"name":"a","value":5,"value":17}',
    b'{"name":"a","value":17,"name":5}',
    b'{"name":"a","value":17,"tags":{"x":1}}',
    b'{"name":"a","nested":{"value":17},"value":3}',
    b'{"name":"a\\"value\\":17","value":3}',
    b'{"name":"a\\u0000","value":17}',
    b'{"value":17}',
    b'{"name":"a","type":"gauge","value":17}',
    b'{"name":"a","metrics":[],"value":17}',
    b'{"name":"a","metrics":null,"value":17}',
    b'{"name":"a","m\\u0065trics":[],"value":17}',
    b'{"name":"a","value":17,"tags":{"metrics":"x"}}',
    b'{"name":"a","value":17,"x":{"metrics":[]}}',
    b'{"name":"\xff","value":17}',
    b'{"name":"a","value":17,"x":"\xff"}',
    b'{"name":"a","value":17,"x":"\xed\xa0\x80"}',
    b'{"name":"a","value":17,"x":NaN}',
]
values = st.sampled_from([*USUAL, *MISLEADING, *POISON, *ODD])


@pytest.mark.parametrize("value", USUAL)
def test_the_fast_reader_reads_usual_records(value: bytes) -> None:
    """It accepts names and tags in any language, and other fields of any length."""
    assert read_short_form(value) is not None


@pytest.mark.parametrize("value", [*USUAL, *MISLEADING, *POISON, *ODD])
def test_both_readers_agree(value: bytes) -> None:
    """The fast reader leaves a value to the table's reader, or both return the same."""
    agree(value)


@given(values, st.integers(0, 600), st.binary(max_size=3), st.integers(0, 3))
def test_both_readers_agree_on_damaged_bytes(value: bytes, at: int, by: bytes, length: int) -> None:
    """Some bytes of a value are replaced, and the readers still agree."""
    at %= len(value) + 1
    agree(value[:at] + by + value[at + length :])


def test_values_that_are_nested_too_deep_are_left_to_the_tables_reader() -> None:
    """A value at the limit of nesting is read. With one level more it is refused, whatever its length."""
    for depth, filler in ((MAX_DEPTH, b""), (MAX_DEPTH + 1, b""), (MAX_DEPTH + 1, b"y" * 500)):
        nested = b"[" * (depth - 1) + b"]" * (depth - 1)
        value = b'{"name":"a","value":1,"y":"%b","x":%b}' % (filler, nested)
        agree(value)
        assert isinstance(read_value(value, 10), ShortForm) == (depth <= MAX_DEPTH)
        assert depth <= MAX_DEPTH or read_short_form(value) is None


@pytest.mark.parametrize(
    "sketch", [b"", b',"sketch":{"scale":3,"positive":[{"offset":4,"counts":"Ag=="}]}'], ids=["none", "one"]
)
def test_a_snapshot_with_many_brackets_is_read_up_to_the_limit_of_nesting(sketch: bytes) -> None:
    """Unknown fields may have any number of brackets. Only their depth counts."""
    head = b'{"v":1,"app":"a","life":"01HF7YAT00AAAAAAAAAAAAAAAA","part":0,"seq":1,"ts":0,"every_ms":1000,"final":false'
    metric = b'{"type":"histogram","name":"h","count":2,"sum":3,"min":1,"max":2%b}' % sketch
    for depth in (MAX_DEPTH, MAX_DEPTH + 1):
        nested = b"[" * (depth - 1) + b"]" * (depth - 1)
        value = b'%b,"x":[%b],"y":%b,"metrics":[%b]}' % (head, b"[],[]," * 60 + b"[]", nested, metric)
        read = read_value(value, 10)
        assert isinstance(read, DecodedSnapshot) == (depth <= MAX_DEPTH)
        assert not isinstance(read, DecodedSnapshot) or [one.name for one in read.metrics] == ["h"]


def agree(value: bytes) -> None:
    fast, full = read_short_form(value), read_value(value, 10)
    if fast is not None:
        assert isinstance(full, ShortForm)
        assert (fast.name, fast.value, fast.tags) == (full.name, full.value, full.tags)
    assert not (isinstance(full, DecodedSnapshot) and fast is not None)
