"""InfluxDB 2.x, through influxdb-client: a sink that writes synchronously, and a reader in Flux."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from influxdb_client import InfluxDBClient
from influxdb_client import Point as InfluxPoint
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.domain.write_precision import WritePrecision
from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError

from tallystream.aggregator.sinks._influx_text import decode, encode_name, encode_value
from tallystream.aggregator.sinks.base import Point, Series, SinkUnavailableError
from tallystream.reporter.errors import ConfigError, TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

BATCH = 5_000
"""Points in one request: what InfluxDB's documentation recommends."""

TIMEOUT_MS = 30_000


class InfluxStore:
    """Writes points to one bucket, and reads them.

    Level: every point. Delivery: as the protocol says; `write` is synchronous.

    A point that InfluxDB will never take (a field of another type, a time beyond the bucket's retention) is logged with
    the reason and counted in `rejected`; its neighbours are written.
    """

    def __init__(self, url: str, *, token: str, org: str, bucket: str) -> None:
        self._url = url
        self._org = org
        self._bucket = bucket
        self._client = InfluxDBClient(url=url, token=token, org=org, timeout=TIMEOUT_MS, enable_gzip=True)
        self._writer = self._client.write_api(write_options=SYNCHRONOUS)
        self.rejected = 0

    def setup(self) -> None:
        """Look whether the bucket is there and the token may use it.

        Raises:
            ConfigError: the token, the organization or the bucket is wrong.
            SinkUnavailableError: the server does not answer.
        """
        self._ask(f"buckets() |> filter(fn: (r) => r.name == {_text(self._bucket)})", empty=self._no_bucket())

    def write(self, points: Sequence[Point]) -> None:
        """Write the points in order, some thousands a request.

        Raises:
            ConfigError: the token, the organization or the bucket is wrong.
            SinkUnavailableError: the server does not answer or is overloaded; write the same points again later.
        """
        for at in range(0, len(points), BATCH):
            self._write(points[at : at + BATCH])

    def flush(self) -> None:
        """Return at once: `write` is synchronous."""

    def close(self) -> None:
        """Release the connections; safe to call again."""
        self._client.close()

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted."""
        tables = self._ask(
            f'import "influxdata/influxdb/schema"\n'
            f"schema.measurements(bucket: {_text(self._bucket)}, start: time(v: 0))"
        )
        return sorted(decode(str(row.get_value())) for table in tables for row in table.records)

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,
        end_ms: int,
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,
    ) -> list[Series]:
        """Return series as the protocol says."""
        if start_ms >= end_ms or not fields:
            return []
        wanted = [f"r._measurement == {_text(encode_name(measurement))}"]
        wanted += ["(" + " or ".join(f"r._field == {_text(encode_name(name))}" for name in fields) + ")"]
        wanted += [f"r[{_text(encode_name(k))}] == {_text(encode_value(v))}" for k, v in (tags or {}).items()]
        chosen = f"|> filter(fn: (r) => {' and '.join(wanted)})"
        found: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        if last_before and start_ms > 0:
            self._gather(f"{self._range(0, start_ms)} {chosen} |> last()", measurement, found)
        self._gather(f"{self._range(start_ms, end_ms)} {chosen}", measurement, found)
        return [found[key] for key in sorted(found, key=lambda key: (key[1], key[0]))]

    def _gather(self, flux: str, measurement: str, found: dict[Any, Series]) -> None:
        for table in self._ask(flux):
            for row in table.records:
                name = decode(row.get_field())
                tags = {decode(k): decode(v) for k, v in row.values.items() if _is_tag(k) and v is not None}
                key = (name, tuple(sorted(tags.items())))
                series = found.setdefault(key, Series(measurement, tags, name))
                series.times_ms.append(round(row.get_time().timestamp() * 1000))
                series.values.append(row.get_value())

    def _range(self, start_ms: int, end_ms: int) -> str:
        times = (datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") for ms in (start_ms, end_ms))
        start, stop = (text.replace("+00:00", "Z") for text in times)
        return f"from(bucket: {_text(self._bucket)}) |> range(start: {start}, stop: {stop})"

    def _ask(self, flux: str, *, empty: ConfigError | None = None) -> list[Any]:
        try:
            tables = list(self._client.query_api().query(flux))
        except ApiException as error:
            raise self._error(error) or TallystreamError(f"InfluxDB {self._url}: {_reason(error)}") from error
        except (HTTPError, OSError) as error:
            raise self._unavailable(error) from error
        if empty is not None and not any(table.records for table in tables):
            raise empty
        return tables

    def _write(self, points: Sequence[Point]) -> None:
        try:
            lines = [_line(point) for point in points]
            self._writer.write(bucket=self._bucket, record=lines, write_precision=WritePrecision.MS)
        except ApiException as error:
            known = self._error(error)
            if known is not None:
                raise known from error
            if len(points) > 1:  # one bad point fails a request: find it by halves; what was written stays written
                middle = len(points) // 2
                self._write(points[:middle])
                self._write(points[middle:])
                return
            self.rejected += 1
            log.warning("InfluxDB refuses a point of %r for good: %s", points[0].measurement, _reason(error))
        except (HTTPError, OSError) as error:
            raise self._unavailable(error) from error

    def _error(self, error: ApiException) -> TallystreamError | None:
        """Return what an answer of the server means, None when it is about the points themselves."""
        if error.status in {401, 403}:
            return ConfigError("INFLUXDB_TOKEN", "***", f"InfluxDB at {self._url} refuses it: {_reason(error)}")
        if error.status == 404:
            return self._no_bucket()
        if error.status in {400, 413, 422}:
            return None
        return self._unavailable(_reason(error))

    def _unavailable(self, why: object) -> SinkUnavailableError:
        return SinkUnavailableError(f"InfluxDB {self._url}: {why}.")

    def _no_bucket(self) -> ConfigError:
        where = f"organization {self._org!r} at {self._url}"
        return ConfigError(
            "--bucket", self._bucket, f"there is no such bucket in the {where}: make it, or name another"
        )


def _line(point: Point) -> InfluxPoint:
    made = InfluxPoint(encode_name(point.measurement)).time(point.ts_ms, WritePrecision.MS)
    for name, value in sorted(point.tags.items()):
        made.tag(encode_name(name), encode_value(value))
    for field, content in point.fields.items():
        made.field(encode_name(field), content)
    return made


def _is_tag(column: str) -> bool:
    return not column.startswith("_") and column not in {"result", "table"}


def _text(text: str) -> str:
    """Return a Flux string literal; `${` would begin an interpolation."""
    return json.dumps(text, ensure_ascii=False).replace("${", "\\${")


def _reason(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"
