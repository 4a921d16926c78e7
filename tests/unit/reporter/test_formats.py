"""The text formats, and the selection of metrics and attributes."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import (
    ConfigError,
    ConsoleReporter,
    GraphiteReporter,
    InfluxReporter,
    JsonLinesReporter,
    MetricRegistry,
)
from tallystream.record import Counter, Gauge, Meter, Sketch, Timer
from tallystream.reporters.filters import AttributeFilter, MetricFilter
from tallystream.reporters.graphite import graphite_lines
from tallystream.reporters.influx import influx_line
from tallystream.reporters.text import readable

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=20)
TIMER = Timer(name="t", count=2, sum=0.5, min=0.1, max=0.4, p99=0.4, m1_rate=2.0, sketch=Sketch(scale=6))


GRAPHITE: dict[str, Any] = {"instance": "i"}
INFLUX: dict[str, Any] = {"instance": "i", "url": "http://localhost:1", "token": "t", "org": "o", "bucket": "b"}


BAD_URLS = [
    *("localhost", "ftp://h", "http://", "http://me:hush@h:abc", "http://me:hush@h:99999", "http://h:0", "http://[::1"),
    *("me:hush@h:8086", "http://h/a b", "http://h/ü", "http://h\n", "http://a b", b"http://h", None),
]
BAD_TOKENS = ["", " \n", "hush\nhush", "hush\0hush", "hush-hüsh", "hush\udcffhush", b"hush", None]


@pytest.mark.parametrize(
    ("make", "arguments", "field"),
    [
        (GraphiteReporter, {**GRAPHITE, "instance": ""}, "instance"),
        (GraphiteReporter, {**GRAPHITE, "attributes": ["no"]}, "attributes"),
        (InfluxReporter, {**INFLUX, "instance": ""}, "instance"),
        *((InfluxReporter, {**INFLUX, "url": url}, "url") for url in BAD_URLS),
        *((InfluxReporter, {**INFLUX, "token": token}, "token") for token in BAD_TOKENS),
        (ConsoleReporter, {"attributes": ["p100"]}, "attributes"),
    ],
)
def test_a_rejected_reporter_leaves_no_metric_behind(
    make: Callable[..., object], arguments: dict[str, Any], field: str
) -> None:
    """The error names the argument and shows no secret. It is raised at once, not at each report."""
    registry = MetricRegistry("app")
    with pytest.raises(ConfigError) as caught:
        make(registry, **arguments)
    assert caught.value.field == field
    assert "hush" not in repr(caught.value)
    assert registry.metrics() == []


@pytest.mark.parametrize("url", ["http://h", "https://h:8086/", "http://[::1]:8086/influx", "http://me:hush@bücher:1"])
def test_a_url_that_can_work_is_accepted(url: str) -> None:
    """With a port, a path, an IPv6 address or a name that is not ASCII. A password is not shown."""
    address = url.rstrip("/").rpartition("//")[2].removesuffix("/influx").removeprefix("me:hush@")
    reporter = InfluxReporter(MetricRegistry("app"), **{**INFLUX, "url": url})
    assert repr(reporter) == f"<InfluxReporter of 'app' to {address!r}>"


def test_the_log_says_which_report_failed_and_where(caplog: pytest.LogCaptureFixture) -> None:
    """A process may have several reporters, and "Connection refused" names none."""
    registry = MetricRegistry("app")
    for reporter in (GraphiteReporter(registry, **GRAPHITE, port=1), InfluxReporter(registry, **INFLUX)):
        assert not reporter.report_now()
    graphite, influx = (record.getMessage() for record in caplog.records)
    assert graphite.startswith("<GraphiteReporter of 'app' to 'localhost:1'>: a report failed: ")
    assert influx.startswith("<InfluxReporter of 'app' to 'localhost:1'>: a report failed: ")


def test_readable() -> None:
    """Name, sorted tags, type and attributes, without line breaks."""
    metric = Counter(name="a\nb", tags={"y": "2", "x": "1\u2028"}, count=3)
    assert readable(metric, {"count": 3, "rate": 1 / 3}) == "a\\nb{x=1\\u2028,y=2} counter count=3 rate=0.333333"
    assert readable(Gauge(name="g", value=1), {}) == "g gauge"


def test_graphite() -> None:
    """One line for each attribute, with Graphite's tags and the time in seconds."""
    metric = Meter(name="a b", tags={"t=": "x;y", "empty": ""}, count=3)
    assert graphite_lines(metric, {"count": 3, "m1_rate": 0.5}, "pre", {"app": "o"}, 1_700_000_000_999) == [
        "pre.a_b.count;app=o;t_=x_y 3 1700000000",
        "pre.a_b.m1_rate;app=o;t_=x_y 0.5 1700000000",
    ]


def test_influx() -> None:
    """The escapes of line protocol, integers with i, floats without, milliseconds; no comment and no empty line."""
    metric = Counter(name="a b,c\n", tags={"k=": "v w", "end": "\\", "empty": ""}, count=3)
    line = influx_line(metric, {"count": 3, "sum": 4, "mean": 0.5}, {"app": "o"}, 1_700_000_000_999)
    assert line == "a\\ b\\,c\\n,app=o,end=\\_,k\\==v\\ w count=3i,sum=4.0,mean=0.5 1700000000999"
    assert influx_line(metric, {}, {}, 0) is None
    assert influx_line(Counter(name="#requests", count=3), {"count": 3}, {}, 0) == "_#requests count=3i 0"


def test_a_tag_of_a_metric_replaces_no_tag_of_the_reporter() -> None:
    """It gets the prefix tag_, as in the stores of the aggregator, also if its value is empty."""
    metric = Counter(name="c", tags={"app": "x", "instance": "", "tag_app": "y"}, count=3)
    own = {"app": "shop", "instance": "a"}
    line = influx_line(metric, {"count": 3}, own, 0)
    assert line == "c,app=shop,instance=a,tag_app=x,tag_tag_app=y count=3i 0"
    assert graphite_lines(metric, {"count": 3}, "", own, 0) == [
        "c.count;app=shop;instance=a;tag_app=x;tag_tag_app=y 3 0"
    ]


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_no_text_creates_a_second_line(name: str, tag: str, value: str) -> None:
    """With any name or tag, each format has one line, and Graphite's has three words."""
    metric = Counter(name=name, tags={tag: value}, count=1)
    values = {"count": 1.0}
    texts = [readable(metric, values), influx_line(metric, values, {}, 0) or ""]
    [line] = graphite_lines(metric, values, "p", {}, 0)
    for text in (*texts, line):
        assert "\n" not in text
        assert "\r" not in text
    assert len(line.split(" ")) == 3


def test_a_line_that_is_cut_off_is_a_failed_report(tmp_path: Path) -> None:
    """`report_now()` is True if the whole line was written. The next line begins after the incomplete one."""
    registry, path = MetricRegistry("app"), tmp_path / "metrics.jsonl"
    registry.counter("c" * 500).inc()
    reporter = JsonLinesReporter(registry, path=path, own_metrics=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800, hard))
    try:
        assert [reporter.report_now() for _ in range(3)] == [True, False, False]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.stat().st_size == 800
    assert reporter.last_error is not None
    assert "File too large" in reporter.last_error
    assert reporter.report_now()
    assert reporter.report_now()
    lines = path.read_text().splitlines()
    assert [line.endswith("}]}") for line in lines] == [True, False, True, True]


def test_json_lines_stay_in_one_file(registry: MetricRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is that of the folder in which the reporter was created: a daemon goes to another one."""
    monkeypatch.chdir(tmp_path)
    reporter = JsonLinesReporter(registry, path="metrics.jsonl")
    assert reporter.report_now()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert reporter.report_now()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_attributes() -> None:
    """Only the selected attributes that have a value; a sketch is not one."""
    assert AttributeFilter().values(TIMER)["sum"] == 0.5
    assert "sketch" not in AttributeFilter().values(TIMER)
    assert "p50" not in AttributeFilter().values(TIMER)
    shape = AttributeFilter(attributes=["p99", "m1_rate", "count"])
    assert shape.values(TIMER) == {"count": 2, "p99": 0.4, "m1_rate": 2.0}
    assert shape.values(Gauge(name="g", value=1)) == {}


@pytest.mark.parametrize("wrong", ["", "orders.*", None, 5, [""], [5], iter(["*"])])
def test_what_is_no_list_of_texts_selects_nothing(wrong: Any) -> None:
    """The error names the argument. An iterator would be empty at the second report."""
    for field in ("include", "exclude"):
        with pytest.raises(ConfigError, match=f"^{field}: .* can't be used; give a list of patterns"):
            MetricFilter(**{field: wrong})
    if wrong is not None:
        with pytest.raises(ConfigError, match=r"^attributes: .* can't be used; give a list of some of count, "):
            AttributeFilter(wrong)
