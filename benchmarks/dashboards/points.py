"""The points that shipper, aggregator and lag collector write in some hours, in the line protocol of InfluxDB.

docs/stores.md describes the schema. The time of a query depends on series and points, not on values, so all values
grow by the same number in each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.health.internal_metrics import INTERNAL_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_MS = 10_000
KINDS = ("counter",) * 6 + ("gauge",) * 2 + ("meter", "timer")
"""The types of ten metrics; further metrics repeat them."""
NAMES = {"counter": "records", "gauge": "queue", "meter": "requests", "timer": "request.time"}
LIFE_FIELDS = "lives=@i,instances=@i,retired=@i"
_VIEW = "sum=@,min=@,max=@"
_RATES = "mean_rate=@,m1_rate=@,m5_rate=@,m15_rate=@"
_QUANTILES = "p50=@,p75=@,p95=@,p98=@,p99=@,p999=@"
SUM = {
    "counter": "count=@i",
    "gauge": f"{_VIEW},mean=@,number=@i",
    "meter": f"count=@i,{_RATES}",
    "timer": f"count=@i,{_VIEW},mean=@,{_RATES},{_QUANTILES}",
}
ROW = {"counter": "count=@i", "gauge": "value=@", "meter": f"count=@i,{_RATES}", "timer": f"count=@i,{_VIEW},{_RATES}"}
LIFE = 'life="01JD0000000000000000000000"'
GROUP = 'status="OK",state="Stable",reason="",drain="now",lag=@i,seconds=@,produced=@,consumed=@,members=@i'
GROUPS, PARTITIONS = 20, 10
PHASES = ("addBatch", "getBatch", "latestOffset", "queryPlanning", "triggerExecution", "walCommit")


class Series(NamedTuple):
    """A series: its measurement and tags, and its fields with `@` in place of each number."""

    place: str
    fields: str


def lines(end_ms: int, hours: float, metrics: int, instances: int) -> Iterator[str]:
    """Yield one point of each series for each step in the hours before `end_ms`, in order of time."""
    series = [*_sums(metrics), *_rows(metrics, instances), *_lag(), *_own()]
    steps = round(hours * 3_600_000 / STEP_MS)
    for step in range(steps):
        number, ts_ms = str(step * 60), end_ms - (steps - 1 - step) * STEP_MS
        same = {fields: fields.replace("@", number) for fields in {one.fields for one in series}}
        for one in series:
            yield f"{one.place} {same[one.fields]} {ts_ms}"


def _sums(metrics: int) -> Iterator[Series]:
    for number, kind in _metrics(metrics):
        for topic in ("orders", "returns"):
            place = f"{NAMES[kind]}.{number},app={_app(number)},metric_type={kind},topic={topic}"
            yield Series(place, f"{SUM[kind]},{LIFE_FIELDS}")
    yield Series("records.0.position,app=app-0,metric_type=position", f"start=@i,position=@i,{LIFE_FIELDS}")
    yield Series("tallystream.events,app=app-0,instance=i-0,kind=overflow", f'text="overflow: i-0",{LIFE}')


def _rows(metrics: int, instances: int) -> Iterator[Series]:
    for number, kind in _metrics(metrics):
        for one in range(instances):
            tags = f"app={_app(number)},instance=i-{one},metric_type={kind},topic=orders"
            yield Series(f"instance:{NAMES[kind]}.{number},{tags}", f"{ROW[kind]},{LIFE}")


def _metrics(metrics: int) -> Iterator[tuple[int, str]]:
    return ((number, KINDS[number % len(KINDS)]) for number in range(metrics))


def _app(number: int) -> str:
    return f"app-{number // len(KINDS) % 2}"


def _lag() -> Iterator[Series]:
    names = ["tallystream-aggregator", "tallystream-shipper", *(f"group-{one}" for one in range(GROUPS - 2))]
    for name in names:
        yield Series(f"tallystream.lag.groups,group={name}", GROUP)
        for one in range(PARTITIONS):
            yield Series(f"tallystream.lag,group={name},topic=orders,partition={one}", 'lag=@i,status="OK"')
    yield Series("tallystream.lag.rounds", "took_s=@,groups=@i")


def _own() -> Iterator[Series]:
    for command in ("aggregate", "ship"):
        for one in INTERNAL_METRICS:
            tags = f",app=tallystream,command={command}"
            if one.kind == "timer":
                for phase in PHASES:
                    yield Series(f"{one.name}{tags},metric_type=timer,phase={phase}", f"{SUM['timer']},{LIFE_FIELDS}")
            elif one.kind == "counter":
                yield Series(f"{one.name}{tags},metric_type=counter", f"{SUM['counter']},{LIFE_FIELDS}")
            else:
                place = ",topic=metrics,partition=0" if "topic" in one.labels else ""
                yield Series(f"{one.name}{tags},metric_type=gauge{place}", f"{SUM['gauge']},{LIFE_FIELDS}")
