"""Renders families of samples in Prometheus' text format.

Source: "Exposition formats", text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NAMED = {math.inf: "+Inf", -math.inf: "-Inf"}


class Sample(NamedTuple):
    """One value. `suffix` follows the name of the family, as in `_sum`."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


class Family(NamedTuple):
    """The samples of one name. The names of families and labels must be valid for Prometheus; this is not checked."""

    name: str
    kind: Literal["counter", "gauge", "summary", "untyped"]
    help: str
    samples: list[Sample]


def render(families: Iterable[Family]) -> str:
    """Return the text of the families. A family without samples is skipped."""
    shown = [family for family in families if family.samples]
    written: dict[int, str] = {}  # by the labels' identity: one mapping may serve many samples
    return "".join(line + "\n" for family in shown for line in _lines(family, written))


def _lines(family: Family, written: dict[int, str]) -> Iterable[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        labels = written.get(id(sample.labels))
        if labels is None:
            labels = ",".join(f'{name}="{_quoted(value)}"' for name, value in sample.labels.items())
            labels = written[id(sample.labels)] = f"{{{labels}}}" if labels else ""
        yield f"{family.name}{sample.suffix}{labels} {_number(sample.value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)  # all digits: rounding is left to the reader
    return "NaN" if math.isnan(value) else _NAMED.get(value, repr(value))
