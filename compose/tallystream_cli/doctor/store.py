"""Checks of the store: what `ship` and the readers of a store do at their start."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.stores import open_sink, open_store
from tallystream_cli.doctor.findings import not_checked, of_error, ok, warning
from tallystream_cli.options import unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_cli.doctor.findings import Finding

CHECK = "store"


def check_store(settings: StoreSettings) -> Iterator[Finding]:
    """Check a store.

    Raises:
        TallystreamError: the store does not answer, or rejects a setting.
    """
    if settings.kind == "prometheus":
        yield not_checked(CHECK, f"ship itself listens on {settings.where}, and Prometheus scrapes it")
    elif settings.kind == "local":
        yield from local(settings)
    elif settings.kind == "influxdb":
        yield rights({"read": _error(_read, settings), "write": _error(_set_up, settings)}, settings)
    else:
        _set_up(settings)
        yield ok(CHECK, f"{settings.spec} accepts points")


def local(settings: StoreSettings) -> Iterator[Finding]:
    """Check the file of a local store, and whether this user may write it."""
    path = Path(settings.where)
    _read(settings)
    yield ok(CHECK, str(path) if path.exists() else f"{path} does not exist yet; ship or lag collect creates it")
    if unwritable(path):
        remedy = "allow it, if this user runs ship or lag collect"
        yield warning(f"{CHECK}: file", f"this user may not write {path}", remedy)


def rights(tried: Mapping[str, TallystreamError | None], settings: StoreSettings) -> Finding:
    """Check that the token may do something, and that it fails for no other reason than a wrong setting.

    `tried` has the error of a query and of a write of no points, or None.
    """
    allowed = [action for action, error in tried.items() if error is None]
    problem = next((error for error in tried.values() if not isinstance(error, ConfigError | None)), None)
    if not allowed:
        problem = problem or tried["write"]
    if problem is not None:
        return of_error(CHECK, problem)
    return ok(CHECK, f"{settings.spec}: the token may {' and '.join(allowed)} the bucket")


def _read(settings: StoreSettings) -> None:
    with closing(open_store(settings)) as reader:
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
