"""The families of the exposition: valid and complete for any names of metrics."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.levels import VALUES, samples, sum_point
from tallystream_aggregator.health.exposition import render
from tallystream_aggregator.health.server import Response
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.prometheus import names
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.sinks.prometheus.text import Held, exposition
from tallystream_aggregator.sums import Sum

# Few words, many of them suffixes of families, so that names are often similar.
_names = st.lists(
    st.sampled_from(["x", "y", "total", "seconds", "sum", "count", "min", "value", "_", "tallystream.sums", "-"]),
    min_size=1,
    max_size=3,
).flatmap(lambda words: st.sampled_from([".", "_", " "]).map(lambda between: between.join(words)))
_tags = st.dictionaries(st.sampled_from(["a", "a.b", "name", "app", "quantile", ""]), st.sampled_from(["", "%", "1"]))


def held(*sums: tuple[str, str, dict[str, str]]) -> list[Held]:
    """Create a point for each (name, type, tags). Its value identifies it."""
    made = []
    for n, (name, kind, tags) in enumerate(sums):
        one = sum_point(kind, n, 1_700_000_000_000 + n, name, tags)
        fields = {field: value for field, value in one.fields.items() if not isinstance(value, str)}
        made.append(Held(name, one.tags, names.labels(name, one.tags), fields, one.ts_ms))
    return made


@settings(deadline=None)
@given(st.lists(st.tuples(_names, st.sampled_from(sorted(VALUES)), _tags), max_size=6, unique_by=repr))
def test_the_exposition_is_valid_and_complete(sums: list[tuple[str, str, dict[str, str]]]) -> None:
    """Each family occurs once and has one kind. Each sample is in its family. Each field of each sum is a sample."""
    made = held(*sums)
    families, _ = exposition(made)
    assert len({family.name for family in families}) == len(families)
    owners: dict[str, str] = {}
    for family in families:
        ends = ("", "_sum", "_count") if family.kind == "summary" else ("",)
        for end in ends:
            assert owners.setdefault(family.name + end, family.name) == family.name
        assert {sample.suffix for sample in family.samples} <= set(ends)
    read = samples(render(families))
    points = [sum_point(kind, n, 0, name, tags) for n, (name, kind, tags) in enumerate(sums)]
    shown = sum(
        names.place(one.measurement, one.tags["metric_type"], field) is not None
        for one in points
        for field in one.fields
    )
    assert len(read) == 1 + 4 * len(made) + shown
    assert read[names.SUMS, frozenset()] == len(made)


def test_a_gauge_with_the_name_of_a_summary_is_renamed() -> None:
    """The gauge gets another family and the label `name`, and a note."""
    families, notes = exposition(held(("x", "gauge", {}), ("x", "histogram", {}), ("x.sum", "gauge", {})))
    text = render(families)
    assert "# TYPE x summary\n" in text
    assert "# TYPE x_value gauge\n" in text
    assert 'x_value{name="x",app="orders",metric_type="gauge"} 0.5\n' in text
    assert 'x_sum_value{name="x.sum",app="orders",metric_type="gauge"} 0.5\n' in text
    assert notes["x"] == "x is the name of another kind of family: 'x' is called x_value, with the label name"
    assert {"x", "x_sum"} <= set(notes)


def test_two_names_may_share_a_family() -> None:
    """The label `name` distinguishes them, and there is a note."""
    families, notes = exposition(held(("a.b", "counter", {}), ("a_b", "counter", {})))
    text = render(families)
    assert 'a_b_total{app="orders",metric_type="counter"} 0\n' in text
    assert 'a_b_total{name="a_b",app="orders",metric_type="counter"} 1\n' in text
    assert notes == {"a_b_total": "a_b_total is the family of 'a.b' and 'a_b': they differ in the label name"}


def test_every_sum_has_its_lives_and_its_time() -> None:
    """The name is a label."""
    text = render(exposition(held(("orders.processed", "counter", {"topic": "x"}))).families)
    labels = '{name="orders.processed",app="orders",metric_type="counter",topic="x"}'
    assert f"tallystream_living_lives{labels} 2\n" in text
    assert f"tallystream_living_instances{labels} 1\n" in text
    assert f"tallystream_retired_lives{labels} 0\n" in text
    assert f"tallystream_sum_time_seconds{labels} 1700000000.0\n" in text
    assert text.startswith(
        "# HELP tallystream_sums Sums that are shown.\n# TYPE tallystream_sums gauge\ntallystream_sums 1\n"
    )
    assert "# HELP orders_processed_total Count of orders.processed, over all instances of each app.\n" in text


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("step_ms", [1, 0, -1])
def test_the_last_point_is_shown_with_its_fields_only(step_ms: int, flush: bool) -> None:
    """The order counts, not the time: the table's clock may stand still or go back.

    A gauge that no living life reports has no sum any more.
    """
    sink = PrometheusSink("127.0.0.1", 0)
    gauge = Sum(app="a", name="open", type="gauge", sum=5.0, min=5.0, max=5.0, mean=5.0, number=1, ts=1000)
    sink.write([point(gauge)])
    if flush:
        sink.flush()
    sink.write([point(Sum(app="a", name="open", type="gauge", number=0, ts=1000 + step_ms))])
    sink.flush()
    shown = {name: value for (name, _), value in samples(sink.metrics().text).items()}
    assert [name for name in shown if name.startswith("open")] == ["open_number"]
    assert shown[names.SUM_TIME] == 1 + step_ms / 1000


def test_an_overflow_is_a_sample() -> None:
    """Other sums have no such sample."""
    sink = PrometheusSink("127.0.0.1", 0)
    most = Sum(app="a", name="x", type="counter", count=2**63 - 1, overflow=True, ts=1_700_000_000_000)
    sink.write([point(most), sum_point("counter", 1, 1_700_000_000_000, "y")])
    sink.flush()
    lines = [line for line in sink.metrics().text.splitlines() if line.startswith("tallystream_sum_overflow")]
    assert lines == ['tallystream_sum_overflow{name="x",app="a",metric_type="counter"} 1']


def test_the_text_is_rendered_once_for_each_flush() -> None:
    """After a flush or a withdrawal it changes."""
    sink = PrometheusSink("127.0.0.1", 0)
    sink.write([sum_point("counter", 1, 1_700_000_000_000, "x")])
    sink.flush()
    first = sink.metrics()
    sink.write([sum_point("counter", 2, 1_700_000_000_001, "x")])
    assert sink.metrics().body is first.body
    sink.flush()
    assert "x_total{" in sink.metrics().text
    assert sink.metrics().body != first.body
    sink.withdraw("the broker is unavailable")
    assert sink.metrics() == Response(503, "text/plain; charset=utf-8", "the broker is unavailable\n")
