"""The store InfluxDB 2.x, through influxdb-client: a synchronous sink, and a reader that uses Flux.

Line protocol can't have a newline in a name or tag, drops empty tag values, can't have a backslash at the end of a
value, and reserves some tag keys. So such text is percent-encoded. A plain name is not changed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from influxdb_client import InfluxDBClient, WriteService
from influxdb_client import Point as InfluxPoint
from influxdb_client.domain.write_precision import WritePrecision
from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.base import Point, Refused, Series, SinkUnavailableError, is_own, send_in_halves, sift
from tallystream_aggregator.sinks.http import connection_problem, tls_error
from tallystream_aggregator.sinks.influxdb.flux import literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BATCH = 5_000
"""Points in one request, as InfluxDB's documentation recommends."""

TIMEOUT_MS = 30_000


def open_client(url: str, *, token: str, org: str, ca_file: str = "") -> InfluxDBClient:
    """Return InfluxDB's client. It does not retry, because the caller decides how long to try."""
    return InfluxDBClient(
        url=url,
        token=token,
        org=org,
        timeout=TIMEOUT_MS,
        enable_gzip=True,
        retries=Retry(0),
        ssl_ca_cert=ca_file or None,
    )


REFUSED = {400, 413, 422}
"""The statuses of a request that InfluxDB refuses because of what was sent."""


class InfluxStore:
    """Writes points to one bucket, and reads them.

    Level: every point. Delivery: as in the protocol `Sink`; `write` is synchronous.

    InfluxDB refuses a field whose type differs from the stored one, and a time beyond the bucket's retention.
    """

    def __init__(self, url: str, *, token: str, org: str, bucket: str, ca_file: str = "") -> None:
        self._url = url
        self._org = org
        self._bucket = bucket
        self._ca_file = ca_file
        self._client = open_client(url, token=token, org=org, ca_file=ca_file)
        self._writes = WriteService(self._client.api_client)

    def setup(self) -> None:
        """Check that the bucket exists and that the token may write to it.

        Raises:
            ConfigError: the URL, the token, the organization or the bucket is wrong.
            SinkUnavailableError: the server does not answer.
        """
        # InfluxDB checks a write of no points as any other, and it needs only the right to write.
        if (reason := self._write(())) is not None:
            raise self._no_influxdb(f"refuses a write of no points: {reason}")

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Write the points in order, at most `BATCH` a request. Return those that InfluxDB never accepts.

        Raises:
            ConfigError: the URL, the token, the organization or the bucket is wrong.
            SinkUnavailableError: the server does not answer or is overloaded; write the same points again later.
        """
        good, bad = sift("InfluxDB", points)
        for at in range(0, len(good), BATCH):
            bad += send_in_halves("InfluxDB", good[at : at + BATCH], self._write, _refuses_each)
        return bad

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete the points of a measurement with start_ms <= time < end_ms.

        Raises:
            ConfigError: the token, the organization or the bucket is wrong.
            SinkUnavailableError: the server does not answer or is overloaded.
        """
        # InfluxDB's end is inclusive.
        start, stop = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (start_ms, end_ms - 1))
        predicate = f"_measurement={literal(encode_name(measurement))}"
        with self._errors():
            self._client.delete_api().delete(start, stop, predicate, bucket=self._bucket, org=self._org)

    def close(self) -> None:
        """Close the connections. It is safe to call this again."""
        self._client.close()

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted."""
        tables = self._ask(
            f'import "influxdata/influxdb/schema"\n'
            f"schema.measurements(bucket: {literal(self._bucket)}, start: time(v: 0))"
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
        newest: bool = False,
    ) -> list[Series]:
        """Return series as in the protocol `PointReader`."""
        if start_ms >= end_ms or not fields:
            return []
        wanted = [f"r._measurement == {literal(encode_name(measurement))}"]
        wanted += ["(" + " or ".join(f"r._field == {literal(encode_name(name))}" for name in fields) + ")"]
        wanted += [f"r[{literal(encode_name(k))}] == {literal(encode_value(v))}" for k, v in (tags or {}).items()]
        chosen = f"|> filter(fn: (r) => {' and '.join(wanted)})"
        found: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        if last_before and start_ms > 0:
            self._gather(f"{self._range(0, start_ms)} {chosen} |> last()", measurement, found)
        last = " |> last()" if newest else ""
        self._gather(f"{self._range(start_ms, end_ms)} {chosen}{last}", measurement, found)
        return [found[key] for key in sorted(found, key=lambda key: (key[1], key[0]))]

    def _gather(self, flux: str, measurement: str, found: dict[Any, Series]) -> None:
        for table in self._ask(flux):
            for row in table.records:
                name = decode(row.get_field())
                tags = {decode(k): decode(v) for k, v in row.values.items() if _is_tag(k) and v is not None}
                key = (name, tuple(sorted(tags.items())))
                value = row.get_value()
                if is_own(name, value):
                    series = found.setdefault(key, Series(measurement, tags, name))
                    series.times_ms.append(round(row.get_time().timestamp() * 1000))
                    series.values.append(decode(value) if isinstance(value, str) else value)

    def _range(self, start_ms: int, end_ms: int) -> str:
        times = (datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") for ms in (start_ms, end_ms))
        start, stop = (text.replace("+00:00", "Z") for text in times)
        return f"from(bucket: {literal(self._bucket)}) |> range(start: {start}, stop: {stop})"

    def _ask(self, flux: str) -> list[Any]:
        with self._errors():
            return list(self._client.query_api().query(flux))

    def _write(self, points: Sequence[Point]) -> str | None:
        """Write points in one request. Return why InfluxDB refuses it because of one of them, None if it does not."""
        lines = "\n".join(_line(point) for point in points) or "\n"  # an empty compressed body is a server error
        with self._errors():
            try:
                _, status, _ = self._writes.post_write_with_http_info(
                    org=self._org, bucket=self._bucket, body=lines, precision=WritePrecision.MS
                )
            except ApiException as error:
                if error.status in REFUSED:
                    return _reason(error)
                raise
        if status != 204:  # a page of another server, as of a login
            raise self._no_influxdb(f"answers a write with {status}")
        return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the error that a response, or its absence, means.

        Raises:
            ConfigError: a setting is wrong.
            SinkUnavailableError: the server does not answer or is overloaded.
            TallystreamError: the server refuses what was sent.
        """
        try:
            yield
        except ApiException as error:
            reason = _reason(error)
            if error.status in {401, 403}:
                why = f"InfluxDB at {self._url} refuses it: {reason}"
                raise ConfigError("INFLUXDB_TOKEN", "***", why) from error
            is_refused = error.status in REFUSED
            if error.status == 404 or (is_refused and "organization name" in reason):  # a bad request for a query
                where = f"organization {self._org!r} at {self._url}"
                why = f"there is no such bucket in the {where}: make it, or name another"
                raise ConfigError("INFLUXDB_BUCKET", self._bucket, why) from error
            if is_refused:
                raise TallystreamError(f"InfluxDB {self._url}: {reason}") from error
            raise SinkUnavailableError(f"InfluxDB {self._url}: {reason}.") from error
        except (HTTPError, OSError) as error:
            untrusted = tls_error(error, self._url, "INFLUXDB_CA_FILE", self._ca_file)
            unavailable = SinkUnavailableError(f"InfluxDB {self._url}: {connection_problem(error)}.")
            raise (untrusted or unavailable) from error

    def _no_influxdb(self, why: str) -> ConfigError:
        return ConfigError("--store", f"influxdb:{self._url}", f"the server {why}: give the URL of InfluxDB's API")


def _line(point: Point) -> str:
    line = InfluxPoint(encode_name(point.measurement)).time(point.ts_ms, WritePrecision.MS)
    for name, value in point.tags.items():
        line.tag(encode_name(name), encode_value(value))
    for field, content in point.fields.items():
        # Text is encoded, too: a response in CSV would change its newlines.
        line.field(encode_name(field), encode_value(content) if isinstance(content, str) else content)
    return str(line.to_line_protocol())


def _refuses_each(reason: str, number: int) -> bool:
    """Return whether InfluxDB dropped each of some points. Thousands of sums may be beyond a bucket's retention."""
    old = f"failure writing points to database: partial write: dropped {number} points outside retention policy"
    return number == 1 or reason.endswith(f" dropped={number}") or reason.startswith(old)


def _is_tag(column: str) -> bool:
    return not column.startswith("_") and column not in {"result", "table"}


def _reason(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"


_ENCODED = {character: f"%{character:02X}" for character in (*range(0x20), 0x7F, ord("%"), ord("\\"))}
EMPTY = "%"
"""The code of the empty text. No other text has this code, because each % in a text becomes %25."""

RESERVED_KEYS = frozenset({"time", "result", "table"})
"""`time` is refused as a tag key. The other two are columns of every query result."""


def encode_name(text: str) -> str:
    """Return the name of a measurement, or the key of a tag or field, as it is stored."""
    if text in RESERVED_KEYS or text[:1] in {"_", "#"}:
        return f"%{ord(text[0]):02X}" + text[1:].translate(_ENCODED)
    return encode_value(text)


def encode_value(text: str) -> str:
    """Return the value of a tag or a text field as it is stored."""
    return text.translate(_ENCODED) if text else EMPTY


def decode(stored: str) -> str:
    """Return the original text: the inverse of `encode_name` and `encode_value`."""
    return "" if stored == EMPTY else unquote(stored)
