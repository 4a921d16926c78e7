"""Prometheus' text format, read back by Prometheus' own client library."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tallystream_aggregator.health.exposition import Family, Sample, render

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


def test_the_text_is_as_the_format_says() -> None:
    """HELP, TYPE, then the samples; each line ends; whole numbers keep all digits."""
    family = Family(
        "a_total", "counter", 'one\nline \\ "two"', [Sample(2**63 - 1, {"x": 'a"b\\c\nd'}), Sample(0.5, {})]
    )
    assert render([family]) == (
        '# HELP a_total one\\nline \\\\ "two"\n'
        "# TYPE a_total counter\n"
        'a_total{x="a\\"b\\\\c\\nd"} 9223372036854775807\n'
        "a_total 0.5\n"
    )


def test_a_summary_has_quantiles_a_sum_and_a_count() -> None:
    """The suffixes of a summary belong to its family."""
    samples = [Sample(0.25, {"quantile": "0.5"}), Sample(1.5, {}, "_sum"), Sample(3, {}, "_count")]
    (read,) = text_string_to_metric_families(render([Family("d_seconds", "summary", "h", samples)]))
    assert (read.type, [(one.name, one.value) for one in read.samples]) == (
        "summary",
        [("d_seconds", 0.25), ("d_seconds_sum", 1.5), ("d_seconds_count", 3.0)],
    )


def test_what_is_no_finite_number_has_its_word() -> None:
    """Not a number and both infinities, as Go's ParseFloat reads them."""
    text = render([Family("g", "gauge", "h", [Sample(v, {}) for v in (math.nan, math.inf, -math.inf)])])
    assert [line.split()[1] for line in text.splitlines() if not line.startswith("#")] == ["NaN", "+Inf", "-Inf"]


def test_a_family_without_samples_is_left_out() -> None:
    """A name that nobody has a value for is not mentioned."""
    assert render([Family("g", "gauge", "h", [])]) == ""


@given(_texts, _texts, st.floats(allow_nan=False))
def test_whatever_the_label_says_it_is_read_back(help_: str, value: str, number: float) -> None:
    """Quotes, newlines, backslashes and other languages come back as they were, and floats to the last bit."""
    (read,) = text_string_to_metric_families(render([Family("g", "gauge", help_, [Sample(number, {"x": value})])]))
    assert [(one.labels, one.value) for one in read.samples] == [({"x": value}, number)]
