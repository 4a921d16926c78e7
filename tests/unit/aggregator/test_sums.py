"""The rows of `metrics-agg`: keys, values, and fields of a later version."""

from __future__ import annotations

import json

import msgspec
import pytest

from tallystream.record import identity
from tallystream_aggregator import sums
from tallystream_aggregator.table.arithmetic.partial_sums import Contribution, PartialSum
from tallystream_aggregator.table.records.outputs import Event


def test_the_order_of_tags_does_not_change_the_key() -> None:
    """Compaction keeps one row for each key."""
    one = sums.key_of(("shop", *identity("n", "counter", {"b": "2", "a": "ö"})))
    assert one == sums.key_of(("shop", *identity("n", "counter", {"a": "ö", "b": "2"})))
    assert json.loads(one) == ["shop", "counter", "n", [["a", "ö"], ["b", "2"]]]


def test_keys_of_hostile_names_do_not_collide() -> None:
    """Names may have quotes, commas and brackets."""
    names = ["a", 'a"', 'a","b', "a]", "a\n", "a,b"]
    keys = {sums.key_of((app, *identity(name, "counter", {}))) for app in names for name in names}
    assert len(keys) == len(names) ** 2


def test_a_row_is_decoded_as_it_was_encoded() -> None:
    """Numbers may have 64 bits. Fields that a type does not have stay None."""
    row = sums.Sum(app="shop", name="n", type="counter", count=2**63 - 1, lives=1, instances=1, ts=5)
    row.offsets = {"metrics": {"0": 41}}
    assert sums.decode(row.value()) == row
    assert json.loads(row.value()).keys() == {
        *("v", "app", "name", "type", "count", "lives", "instances", "ts", "offsets")
    }


def test_a_quantile_that_equals_the_one_before_it_is_left_out_and_read_again() -> None:
    """Few values have few quantiles. A sum without quantiles is read without any."""
    row = sums.Sum(app="shop", name="n", type="histogram", count=3, ts=5)
    row.p50, row.p75, row.p95, row.p98, row.p99, row.p999 = 1.5, 1.5, 2.5, 2.5, 2.5, 1.5
    assert {name for name in json.loads(row.value()) if name.startswith("p")} == {"p50", "p95", "p999"}
    assert sums.decode(row.value()) == row
    none = sums.Sum(app="shop", name="n", type="histogram", count=3, ts=5)
    assert sums.decode(none.value()) == none


@pytest.mark.parametrize("field", ["sum", "min", "max", "mean", "m1_rate", "p50"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_beyond_floats_is_not_a_sum(field: str, sign: str) -> None:
    """No table writes one. JSON has integers of any length."""
    text = '{"v":1,"app":"shop","name":"n","type":"gauge","%s":%s1%s,"ts":5}'
    assert sums.decode((text % (field, sign, "0" * 308)).encode())
    with pytest.raises(msgspec.DecodeError):
        sums.decode((text % (field, sign, "0" * 400)).encode())


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    """So an old reader can read the rows of a new writer."""
    assert sums.decode(b'{"v":1,"app":"a","name":"n","type":"counter","ts":1,"count":3,"later":[1]}').count == 3


def test_the_error_of_an_invalid_row_names_the_field() -> None:
    """It is a validation error."""
    with pytest.raises(msgspec.ValidationError, match="ts"):
        sums.decode(b'{"app":"a","name":"n","type":"counter"}')


def test_a_published_sum_has_its_version_and_offsets() -> None:
    """It also has mean, lives and retired lives."""
    metric = ("shop", "g", "gauge", (("a", "1"),))
    partial = PartialSum("gauge")
    for value in (4, 5):
        partial.replace(None, Contribution((value,), current=True))
    partial.instances, partial.forgotten = 1, 5
    total = partial.row(metric, 77, {"metrics": {"0": 3}})
    row = sums.decode(total.value())
    assert (row.sum, row.min, row.max, row.mean, row.number) == (9, 4, 5, 4.5, 2)
    assert (row.lives, row.instances, row.retired, row.ts) == (2, 1, 5, 77)
    assert (row.offsets, row.tags) == ({"metrics": {"0": 3}}, {"a": "1"})
    assert total.key() == sums.key_of(metric)


def test_an_event_has_the_offset_of_the_record_that_caused_it() -> None:
    """The same event always has the same bytes, so a repeated one can be dropped."""
    event = Event("restart", "shop", "app-1", "L", 5, "metrics", 0, 9, "n")
    assert json.loads(event.key()) == ["shop", "app-1"]
    assert json.loads(event.value()) == {
        "v": 1,
        "kind": "restart",
        "app": "shop",
        "instance": "app-1",
        "life": "L",
        "ts": 5,
        "detail": "n",
        "topic": "metrics",
        "partition": 0,
        "offset": 9,
    }
