"""Checks of the store: the file of a local store, or whether a server accepts connections. influxdb has InfluxDB's."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tallystream_aggregator.sinks.sqlite.database import SCHEMA_VERSION
from tallystream_cli.doctor import disk, influxdb
from tallystream_cli.doctor.findings import failed, not_checked, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding

CHECK = "store"
TIMEOUT_S = 5.0
HEADER_BYTES = 100


def check_store(settings: StoreSettings, commands: Iterable[str]) -> Iterator[Finding]:
    """Check a store. `commands` are those that will use it; if there are none, one right is enough."""
    if settings.kind == "local":
        yield from local(Path(settings.where))
    elif settings.kind == "influxdb":
        yield from influxdb.check_influxdb(settings, commands)
    elif settings.kind == "prometheus":
        yield not_checked(CHECK, f"ship itself listens on {settings.where}, and Prometheus scrapes it")
    else:
        yield receiver(settings)


def local(path: Path) -> Iterator[Finding]:
    """Check the file of a local store. It is read as a file: opening it in SQLite could create files beside it."""
    if path.exists():
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        yield database(str(path), header, logged=path.with_name(path.name + "-wal").exists())
        if (finding := disk.private(f"{CHECK}: file", path, path.stat().st_mode)) is not None:
            yield finding
    else:
        yield ok(CHECK, f"{path} does not exist yet; ship or lag collect creates it")
    if not disk.writable(path):
        remedy = "allow it, if this user runs ship or lag collect"
        yield warning(f"{CHECK}: file", f"this user may not write {path}", remedy)
    yield disk.free_space(CHECK, path)


def database(path: str, header: bytes, *, logged: bool) -> Finding:
    """Check the first bytes of a SQLite file. With `logged`, its version may be in the write-ahead log."""
    if not header:
        return ok(CHECK, f"{path} is empty")
    if not header.startswith(b"SQLite format 3\0"):
        return failed(CHECK, f"{path} is not a local store", "name another file")
    version = int.from_bytes(header[60:64], "big")
    if version != SCHEMA_VERSION and not (version == 0 and logged):
        remedy = "use the release that wrote it, or name another file"
        return failed(CHECK, f"{path} has the schema version {version}, this release has {SCHEMA_VERSION}", remedy)
    return ok(CHECK, path)


def receiver(settings: StoreSettings) -> Finding:
    """Check that Graphite or an OTLP receiver accepts a connection. Nothing is sent."""
    url = urlsplit(settings.where if settings.kind == "otlp" else f"//{settings.where}")
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        socket.create_connection((url.hostname or "", port), timeout=TIMEOUT_S).close()
    except OSError as error:
        return failed(
            CHECK, f"{settings.spec} does not answer: {error.strerror or error}", "start it, or correct --store"
        )
    return ok(CHECK, f"{settings.spec} accepts connections")
