"""Checks of the store: what `ship` and the readers of a store do at their start."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.stores import open_reader, open_sink
from tallystream_cli.doctor.findings import failed, not_checked, of_error, ok, warning
from tallystream_cli.influx_tokens import PERMISSIONS
from tallystream_cli.options import unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding

CHECK = "store"
RIGHTS = {
    "ship": PERMISSIONS["shipper"],
    "lag collect": PERMISSIONS["lag"],
    **dict.fromkeys(("page", "top", "sums", "instances", "compare", "lag show"), PERMISSIONS["page"]),
}
"""What each command does with the bucket."""


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
        tried = {"read": _error(_read, settings), "write": _error(_set_up, settings)}
        yield rights(tried, settings, commands)
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
    if unwritable(path):
        remedy = "allow it, if this user runs ship or lag collect"
        yield warning(f"{CHECK}: file", f"this user may not write {path}", remedy)


def rights(tried: Mapping[str, TallystreamError | None], settings: StoreSettings, commands: Iterable[str]) -> Finding:
    """Check what the token may do against what the commands need; without commands, one right is enough.

    `tried` has the error of a query and of a write of no points, None if it succeeded.
    """
    allowed = [action for action, error in tried.items() if error is None]
    if not allowed and (error := tried["write"]) is not None:
        return of_error(CHECK, error)
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


def _error(call: Callable[[StoreSettings], None], settings: StoreSettings) -> TallystreamError | None:
    try:
        call(settings)
    except TallystreamError as error:
        return error
    return None
