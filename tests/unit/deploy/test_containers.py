"""The addresses in compose.yaml are replaced when its services run as plain processes."""

from __future__ import annotations

from support.compose_services import replace_addresses

REPLACEMENTS = {
    "/tmp/": "/tmp/pytest/tmp/",
    "9400": "39464",
    "9464": "40001",
    "kafka:19092": "127.0.0.1:9400",
    "ab94009464": "token",
}


def test_each_address_is_replaced_once() -> None:
    """Ports, paths and addresses are replaced, alone or within a text. A replacement is not replaced again."""
    assert replace_addresses("9400", REPLACEMENTS) == "39464"
    assert replace_addresses("prometheus:0.0.0.0:9464", REPLACEMENTS) == "prometheus:0.0.0.0:40001"
    assert (
        replace_addresses("check http://127.0.0.1:9400/healthz", REPLACEMENTS) == "check http://127.0.0.1:39464/healthz"
    )
    assert replace_addresses("kafka:19092,/tmp/x", REPLACEMENTS) == "127.0.0.1:9400,/tmp/pytest/tmp/x"


def test_a_secret_that_contains_the_digits_of_a_port_is_unchanged() -> None:
    """A secret that has a replacement itself is replaced completely."""
    for secret in ("c94003", "9400e", "f9464", "94009464"):
        assert replace_addresses(secret, REPLACEMENTS) == secret
    assert replace_addresses("ab94009464", REPLACEMENTS) == "token"
