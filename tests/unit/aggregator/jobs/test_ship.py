"""How `tallystream ship` starts."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from tallystream.errors import ConfigError
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.health import HealthSettings
from tallystream_aggregator.jobs import ship
from tallystream_aggregator.jobs.ship import ShipSettings
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings

SETTINGS = ShipSettings(
    Cluster("b:9092"), StoreSettings.parse("local:x", env={}), health=HealthSettings(own_metrics=False)
)


@pytest.mark.parametrize(
    "error", [None, SinkUnavailableError("away."), ConfigError("INFLUXDB_BUCKET", "x", "create it")]
)
def test_the_settings_of_the_store_are_checked_before_it_asks_for_the_lease(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """With wrong settings, each start would take the lease from the shipper that works. An outage is no error."""
    calls = MagicMock()
    calls.open_sink().setup.side_effect = error
    calls.reset_mock()
    stop = SignalSafeEvent()
    stop.set()
    monkeypatch.setattr(ship, "StopRequest", lambda: MagicMock(install=lambda: stop))
    monkeypatch.setattr(ship.clients, "admin", MagicMock())
    for name in ("check_login", "create_topics", "KafkaBroker"):
        monkeypatch.setattr(ship, name, MagicMock())
    for name in ("open_sink", "Lease"):
        monkeypatch.setattr(ship, name, getattr(calls, name))
    if isinstance(error, ConfigError):
        with pytest.raises(ConfigError):
            ship.run(SETTINGS)
    else:
        assert ship.run(SETTINGS) == 0
    names = [name for name, _, _ in calls.mock_calls]
    assert names[:2] == ["open_sink", "open_sink().setup"]
    assert ("Lease" in names) == (not isinstance(error, ConfigError))
    assert names[-1] == "open_sink().close"
