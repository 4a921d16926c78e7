"""A table in the terminal: what is shown when, and for how long it is waited for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import PointReader, SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.exit_codes import GOOD, UNKNOWN
from tallystream_dashboards.terminal import show
from tallystream_dashboards.terminal.show import Shown, TableSettings


class Late(TableSettings):
    """A table that has something to show at its third reading. The second one fails."""

    readings = 0

    def shown(self, reader: PointReader, at_ms: int) -> Shown:  # noqa: ARG002 (nothing is read)
        """Count the readings."""
        type(self).readings += 1
        if self.readings == 2:
            raise SinkUnavailableError("the store is away.")
        return Shown([], "a sum\n", "", GOOD) if self.readings > 2 else Shown.nothing("nothing")


@pytest.mark.parametrize(("wait_s", "shown"), [(60.0, ("a sum\n", GOOD, 3)), (0.0, ("nothing\n", UNKNOWN, 1))])
def test_it_waits_until_there_is_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float, shown: tuple[str, int, int]
) -> None:
    """Only what is found is printed. Without a wait, or after it, the first answer is printed."""
    monkeypatch.setattr(show, "RETRY_S", 0)
    monkeypatch.setattr(Late, "readings", 0)
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    out = io.StringIO()
    code = show.show(Late(store=store, wait_s=wait_s), out)
    assert (out.getvalue(), code, Late.readings) == shown


def test_a_wait_has_bounds(tmp_path: Path) -> None:
    """A negative time is refused."""
    with pytest.raises(ConfigError, match=r"--wait: -1 can't be used; give seconds from 0 to 86400"):
        Late(store=StoreSettings.parse(f"local:{tmp_path / 'store.db'}"), wait_s=-1)
