"""Checks of InfluxDB: whether it answers, what the token may do, the bucket's retention, the server's clock."""

from __future__ import annotations

import time
from contextlib import closing
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError

from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.influxdb.sink import open_client
from tallystream_aggregator.sinks.stores import open_influxdb
from tallystream_cli.doctor import clock
from tallystream_cli.doctor.findings import failed, not_checked, of_error, ok, warning
from tallystream_cli.influx_tokens import PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding

DAY_S = 86_400
KEPT_DAYS = 7
"""The days for which `metrics-agg` keeps every row, so the age of the oldest points that ship and replay may write."""

TIMEOUT_MS = 5_000
RIGHTS = {
    "ship": PERMISSIONS["shipper"],
    "replay": PERMISSIONS["shipper"],
    "lag collect": PERMISSIONS["lag"],
    **dict.fromkeys(("page", "top", "sums", "instances", "twice", "lag show"), PERMISSIONS["page"]),
}
"""What each command does with the bucket."""


class Rights(NamedTuple):
    """What a token may do with the bucket: the error of a query and of a write of no points, None if it succeeded."""

    read: TallystreamError | None
    write: TallystreamError | None


def check_influxdb(settings: StoreSettings, commands: Iterable[str]) -> Iterator[Finding]:
    """Check the server, the token and the bucket. `commands` are those that will use it."""
    with open_client(
        settings.where, token=settings.token, org=settings.org, ca_file=settings.ca_file, client=settings.client
    ) as client:
        before_s = time.time()
        try:
            health, _, headers = client.api_client.call_api(
                "/health", "GET", response_type="object", _request_timeout=TIMEOUT_MS
            )
        except (ApiException, HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            yield failed("store", f"InfluxDB {settings.where}: {reason}", "start InfluxDB, or correct its URL")
            return
        after_s = time.time()
        yield ok("store", f"InfluxDB {health.get('version', '')} at {settings.where}")
        found = _rights(settings)
        yield rights(found, commands)
        yield retention(_retention(client, settings.bucket) if found.read is None else None)
        yield clock.finding("store: clock", clock_bounds(headers.get("Date"), before_s, after_s), settings.where)


def rights(found: Rights, commands: Iterable[str]) -> Finding:
    """Check what the token may do against what the commands need; without commands, one right is enough."""
    check = "store: token"
    errors = {"read": found.read, "write": found.write}
    allowed = [action for action, error in errors.items() if error is None]
    if not allowed:
        return of_error(check, found.write or TallystreamError())
    needed = {action for command in commands for action in RIGHTS.get(command, ())}
    if lacking := sorted(needed - set(allowed)):
        remedy = "name a token that may, in INFLUXDB_TOKEN or INFLUXDB_TOKEN_FILE (docs/security.md)"
        return failed(check, f"it may not {' or '.join(lacking)} the bucket", remedy)
    usable = [command for command, actions in RIGHTS.items() if set(actions) <= set(allowed)]
    return ok(check, f"it may {' and '.join(allowed)} the bucket, as {', '.join(usable)} must")


def retention(seconds: int | None) -> Finding:
    """Check the retention of a bucket: 0 is unlimited, None unknown."""
    check = "store: retention"
    if seconds is None:
        return not_checked(check, "the token may not read the bucket")
    if seconds == 0:
        return ok(check, "unlimited")
    if seconds < KEPT_DAYS * DAY_S:
        remedy = f"influx bucket update --retention {KEPT_DAYS}d: InfluxDB refuses older points"
        return warning(check, f"{seconds / DAY_S:g} days, and metrics-agg has the sums of {KEPT_DAYS} days", remedy)
    return ok(check, f"{seconds / DAY_S:g} days")


def clock_bounds(date: str | None, before_s: float, after_s: float) -> clock.Bounds:
    """Return the difference of the clocks from a response's header Date, which has whole seconds."""
    if not date:
        return clock.Bounds(None, None)
    at_s = parsedate_to_datetime(date).timestamp()
    return clock.Bounds(at_s - after_s, at_s + 1 - before_s)


def _rights(settings: StoreSettings) -> Rights:
    now_ms = int(time.time() * 1000)
    with closing(open_influxdb(settings)) as store:
        return Rights(
            _error(lambda: store.read("tallystream", ["count"], start_ms=now_ms - 1000, end_ms=now_ms)),
            _error(store.setup),
        )


def _error(call: Callable[[], object]) -> TallystreamError | None:
    try:
        call()
    except TallystreamError as error:
        return error
    return None


def _retention(client: Any, bucket: str) -> int | None:
    found = client.buckets_api().find_buckets(name=bucket).buckets
    return next((rule.every_seconds for one in found[:1] for rule in one.retention_rules), 0) if found else None
