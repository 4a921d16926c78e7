"""Checks of the store: what `ship` and the readers of a store do at their start."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.stores import open_reader, open_sink
from tallystream_cli.doctor.findings import failed, not_checked, of_error, ok, warning
from tallystream_cli.influx_tokens import PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding

CHECK = "store"
RIGHTS = {
    "ship": PERMISSIONS["shipper"],
    "lag collect": PERMISSIONS["lag"],
    **dict.fromkeys(("page", "top", "sums", "instances", "twice", "lag show"), PERMISSIONS["page"]),
}
"""What each command does with the bucket."""


class Rights(NamedTuple):
    """What a token may do with the bucket: the error of a query and of a write of no points, None if it succeeded."""

    read: TallystreamError | None
    write: TallystreamError | None


def check_store(settings: StoreSettings, commands: Iterable[str]) -> Iterator[Finding]:
    """Check a store. `commands` are those that will use it; if there are none, one right is enough.

    Raises:
        TallystreamError: the store does not answer, or rejects a setting.
    """
    if settings.kind == "prometheus":
        yield not_checked(CHECK, f"ship itself listens on {settings.where}, and Prometheus scrapes it")
    elif settings.kind == "local":
        yield from local(settings)
    elif settings.kind == "influxdb":
        yield rights(Rights(_error(lambda: _read(settings)), _error(lambda: _set_up(settings))), settings, commands)
    else:
        _set_up(settings)
        yield ok(CHECK, f"{settings.spec} accepts points")


def local(settings: StoreSettings) -> Iterator[Finding]:
    """Check the file of a local store, and whether this user may write it."""
    path = Path(settings.where)
    if path.exists():
        _read(settings)
        yield ok(CHECK, str(path))
    else:
        yield ok(CHECK, f"{path} does not exist yet; ship or lag collect creates it")
    if not writable(path):
        remedy = "allow it, if this user runs ship or lag collect"
        yield warning(f"{CHECK}: file", f"this user may not write {path}", remedy)


def writable(path: Path) -> bool:
    """Return whether this user may write a file or folder, or create it."""
    path = path.absolute()
    found = next(one for one in (path, *path.parents) if os.path.exists(one))  # noqa: PTH110 (never raises)
    return (found == path or found.is_dir()) and os.access(found, os.W_OK)


def rights(found: Rights, settings: StoreSettings, commands: Iterable[str]) -> Finding:
    """Check what the token may do against what the commands need; without commands, one right is enough."""
    if found.read is not None and found.write is not None:
        return of_error(CHECK, found.write)
    allowed = [action for action, error in found._asdict().items() if error is None]
    needed = {action for command in commands for action in RIGHTS.get(command, ())}
    if lacking := sorted(needed - set(allowed)):
        remedy = "name a token that may, in INFLUXDB_TOKEN or INFLUXDB_TOKEN_FILE (docs/security.md)"
        return failed(CHECK, f"the token may not {' or '.join(lacking)} the bucket", remedy)
    usable = [command for command, actions in RIGHTS.items() if set(actions) <= set(allowed)]
    return ok(CHECK, f"{settings.spec}: the token may {' and '.join(allowed)}, as {', '.join(usable)} must")


def _read(settings: StoreSettings) -> None:
    with closing(open_reader(settings)) as reader:
        reader.read("tallystream", ["count"], start_ms=0, end_ms=1)


def _set_up(settings: StoreSettings) -> None:
    with closing(open_sink(settings)) as sink:
        sink.setup()


def _error(call: Callable[[], None]) -> TallystreamError | None:
    try:
        call()
    except TallystreamError as error:
        return error
    return None
