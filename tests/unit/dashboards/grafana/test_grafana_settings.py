"""The settings of the generated resources: validation, uids, the contact point."""

from __future__ import annotations

from typing import Any

import pytest

from tallystream.errors import ConfigError
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import Contact, Settings, Thresholds

INVALID: list[tuple[dict[str, Any], str]] = [
    ({"flavour": "sql"}, "--flavour: 'sql' can't be used; give flux or prometheus."),
    ({"uid_prefix": "a b"}, "--uid-prefix: 'a b' can't be used; give 1 to 15 letters, digits, _ or -."),
    ({"uid_prefix": "x" * 16}, "--uid-prefix"),
    ({"folder_title": " "}, "--folder"),
    ({"bucket": ""}, "--bucket is not set; give the name that it has in InfluxDB."),
    ({"org": ""}, "--org"),
    ({"datasource_url": "influxdb:8086"}, "--datasource-url"),
    ({"datasource_url": "http://[1"}, "--datasource-url"),
    ({"datasource_url": "http://influxdb:0"}, "--datasource-url"),
    ({"datasource_url": "http://influxdb:x"}, "--datasource-url"),
]


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_an_invalid_setting_is_refused(given: dict[str, Any], message: str) -> None:
    """The error names the option, the value and the remedy."""
    with pytest.raises(ConfigError) as raised:
        Settings(**given)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "given", [{"lag_seconds": -1.0}, {"aggregator_seconds": 29}, {"stopped_minutes": 0}, {"dead_letters": 2**31}]
)
def test_thresholds_have_bounds(given: dict[str, Any]) -> None:
    """The error of a threshold out of bounds names it."""
    (name,) = given
    with pytest.raises(ConfigError, match=f"--threshold: '{name.replace('_', '-')}="):
        Thresholds(**given)


def test_two_uid_prefixes_have_no_uid_in_common() -> None:
    """Two systems can share a Grafana."""
    one, other = (resources(Settings(uid_prefix=prefix)) for prefix in ("tallystream", "staging"))
    uids = [
        {
            each.folder["uid"],
            each.contact_point["uid"],
            each.datasource["uid"],
            *each.dashboards,
        }
        for each in (one, other)
    ]
    assert not uids[0] & uids[1]
    assert len(uids[0]) == len(uids[1]) >= 3


def test_a_contact_point_can_be_an_email_address() -> None:
    """It has the setting `addresses` instead of `url`."""
    generated = resources(Settings(contact=Contact("email", "ops@example.org")))
    assert generated.contact_point["type"] == "email"
    assert generated.contact_point["settings"] == {"addresses": "ops@example.org"}
