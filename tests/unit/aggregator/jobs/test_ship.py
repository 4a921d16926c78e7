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


@pytest.mark.parametrize("error", [None, SinkUnavailableError("away."), ConfigError("--bucket", "x", "create it")])
def test_the_settings_of_the_store_are_checked_before_it_joins_the_group(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """With wrong settings, each start would take the partitions from the shipper that works. An outage is no error."""
    calls = MagicMock()
    calls.open_sink().setup.side_effect = error
    calls.reset_mock()
    stop = SignalSafeEvent()
    stop.set()
    monkeypatch.setattr(ship, "StopRequest", lambda: MagicMock(install=lambda: stop))
    monkeypatch.setattr(ship.clients, "admin", MagicMock())
    for name in ("check_login", "create_topics", "KafkaBroker"):
        monkeypatch.setattr(ship, name, MagicMock())
    for name in ("open_sink", "Subscription"):
        monkeypatch.setattr(ship, name, getattr(calls, name))
    settings = ShipSettings(
        Cluster("b:9092"), StoreSettings.parse("local:x", env={}), health=HealthSettings(own_metrics=False)
    )
    if isinstance(error, ConfigError):
        with pytest.raises(ConfigError):
            ship.run(settings)
    else:
        assert ship.run(settings) == 0
    names = [name for name, _, _ in calls.mock_calls]
    assert names[:2] == ["open_sink", "open_sink().setup"]
    assert ("Subscription" in names) == (not isinstance(error, ConfigError))
    assert names[-1] == "open_sink().close"
