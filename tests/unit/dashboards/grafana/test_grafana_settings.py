"""What may be chosen for Grafana: uids that stay, secrets that are references, one sentence for what can't be."""

from __future__ import annotations

from typing import Any

import pytest

from tallystream.errors import ConfigError
from tallystream_dashboards.grafana import Contact, Settings, Thresholds, resources
from tallystream_dashboards.grafana.settings import FLAVOURS

BAD: list[tuple[dict[str, Any], str]] = [
    ({"flavour": "sql"}, "--flavour: 'sql' can't be used; give flux, influxql or prometheus."),
    ({"uid_prefix": "a b"}, "--uid-prefix: 'a b' can't be used; give 1 to 15 letters, digits, _ or -."),
    ({"uid_prefix": "x" * 16}, "--uid-prefix"),
    ({"folder_title": " "}, "--folder"),
    ({"bucket": ""}, "--bucket is not set; give the name that it has in InfluxDB."),
    ({"org": ""}, "--org"),
    ({"datasource_url": "influxdb:8086"}, "--datasource-url"),
    ({"datasource_url": "http://[1"}, "--datasource-url"),
]


@pytest.mark.parametrize(("given", "sentence"), BAD)
def test_what_cannot_be_used_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    """A wrong setting names the option, the value and the remedy."""
    with pytest.raises(ConfigError) as raised:
        Settings(**given)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    "given", [{"lag_seconds": -1.0}, {"aggregator_seconds": 29}, {"stopped_minutes": 0}, {"dead_letters": 2**31}]
)
def test_thresholds_have_bounds(given: dict[str, Any]) -> None:
    """A threshold that can't work names its option."""
    (name,) = given
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}: "):
        Thresholds(**given)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_secret_is_written_down(flavour: Any) -> None:
    """Data source and contact point hold references to the environment, where a secret is needed."""
    made = resources(Settings(flavour=flavour))
    for one in made.datasources:
        assert all("$INFLUXDB_TOKEN" in secret for secret in one.get("secureJsonData", {}).values())
    assert made.contact_point["settings"] == {"url": "$TALLYSTREAM_ALERT_URL"}


def test_a_prefix_keeps_two_systems_apart() -> None:
    """Nothing of one system has the uid of another one's."""
    one, other = (resources(Settings(uid_prefix=prefix)) for prefix in ("tallystream", "staging"))
    uids = [
        {made.folder["uid"], made.contact_point["uid"], *(each["uid"] for each in made.datasources), *made.dashboards}
        for made in (one, other)
    ]
    assert not uids[0] & uids[1]
    assert len(uids[0]) == len(uids[1]) >= 3


def test_who_is_told_may_be_a_mailbox() -> None:
    """An e-mail contact has addresses where a webhook has a URL."""
    made = resources(Settings(contact=Contact("email", "ops@example.org")))
    assert made.contact_point["type"] == "email"
    assert made.contact_point["settings"] == {"addresses": "ops@example.org"}
