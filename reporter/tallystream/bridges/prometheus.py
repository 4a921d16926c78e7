"""The bridge to prometheus_client: `registry.add_source(PrometheusSource())`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tallystream import record
from tallystream.bridges.base import Reading, to_integer
from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Labels = tuple[tuple[str, str], ...]


class Collects(Protocol):
    """The method of `prometheus_client.CollectorRegistry` that is needed."""

    def collect(self) -> Iterable[Any]:
        """Return the metric families."""


class PrometheusSource:
    """Reads a registry of prometheus_client (0.20 or later), as a scrape does.

    - A counter becomes a counter of the same name, with `_total`, rounded down to a whole number.
    - A histogram or summary becomes a histogram with count and sum. It has no sketch, since buckets do not contain the
      values within 1.1 %.
    - A gauge, and each sample of any other type, becomes a gauge. NaN and infinity are skipped.
    - Labels become tags. `_created` is used to detect resets by `reset()`, `remove()` or `clear()`.

    In prometheus_client's multi-process mode, each process reports its own values, which are then summed over
    processes. Pass the usual registry, not one with a `MultiProcessCollector`, which has the sums of all processes.

    Args:
        registry: the registry to read; None means `prometheus_client.REGISTRY`.

    Raises:
        ConfigError: the registry has a `MultiProcessCollector`.
        ImportError: no registry is given, and prometheus_client is not installed.
    """

    kind = "prometheus"

    def __init__(self, registry: Collects | None = None) -> None:
        if registry is None:
            from prometheus_client import REGISTRY

            registry = REGISTRY
        self._registry = registry
        collectors = getattr(registry, "_collector_to_names", ())
        if any(type(collector).__name__ == "MultiProcessCollector" for collector in collectors):
            raise ConfigError(
                "registry", "one with a MultiProcessCollector", "give the registry that the metrics themselves are in"
            )

    def read(self) -> Iterator[Reading]:
        """Return the current metrics."""
        for family in self._registry.collect():
            if family.type == "counter":
                yield from _counters(family)
            elif family.type in ("histogram", "summary"):
                yield from _distributions(family)
            else:
                for sample in family.samples:
                    yield Reading(record.Gauge(name=sample.name, tags=dict(sample.labels), value=sample.value))


def _distributions(family: Any) -> Iterator[Reading]:
    began = _created(family)
    sums = {_key(sample.labels): sample.value for sample in family.samples if sample.name == family.name + "_sum"}
    for sample in family.samples:
        key, tags = _key(sample.labels), dict(sample.labels)
        if sample.name == family.name + "_count":
            if key in sums:
                count, total = to_integer(sample.value), float(sums[key])
                yield Reading(record.Histogram(name=family.name, tags=tags, count=count, sum=total), began.get(key))
            else:  # prometheus_client returns no sum if values may be negative
                yield _counter(sample, began.get(key))


def _counters(family: Any) -> Iterator[Reading]:
    began = _created(family)
    for sample in family.samples:
        if sample.name != family.name + "_created":
            yield _counter(sample, began.get(_key(sample.labels)))


def _counter(sample: Any, began: float | None) -> Reading:
    return Reading(record.Counter(name=sample.name, tags=dict(sample.labels), count=to_integer(sample.value)), began)


def _created(family: Any) -> dict[Labels, float]:
    name = family.name + "_created"
    return {_key(sample.labels): sample.value for sample in family.samples if sample.name == name}


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
