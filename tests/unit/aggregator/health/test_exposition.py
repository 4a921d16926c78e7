"""Prometheus' text format, read by Prometheus' own client library."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tallystream_aggregator.health.exposition import Family, Sample, render

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


def test_a_family_has_help_type_and_samples() -> None:
    """Each line ends with a newline, and integers have all their digits."""
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
    """Samples with these suffixes belong to the family."""
    samples = [Sample(0.25, {"quantile": "0.5"}), Sample(1.5, {}, "_sum"), Sample(3, {}, "_count")]
    (read,) = text_string_to_metric_families(render([Family("d_seconds", "summary", "h", samples)]))
    assert (read.type, [(one.name, one.value) for one in read.samples]) == (
        "summary",
        [("d_seconds", 0.25), ("d_seconds_sum", 1.5), ("d_seconds_count", 3.0)],
    )


def test_numbers_that_are_not_finite_have_names() -> None:
    """They are those that Go's ParseFloat reads."""
    text = render([Family("g", "gauge", "h", [Sample(v, {}) for v in (math.nan, math.inf, -math.inf)])])
    assert [line.split()[1] for line in text.splitlines() if not line.startswith("#")] == ["NaN", "+Inf", "-Inf"]


@given(_texts, _texts, st.floats(allow_nan=False))
def test_labels_and_numbers_are_read_as_they_were_written(help_: str, value: str, number: float) -> None:
    """Labels may have quotes, newlines, backslashes and any language. Floats are exact."""
    (read,) = text_string_to_metric_families(render([Family("g", "gauge", help_, [Sample(number, {"x": value})])]))
    assert [(one.labels, one.value) for one in read.samples] == [({"x": value}, number)]
