"""What stands for what when the services of compose.yaml run as plain processes."""

from __future__ import annotations

from support.containers import translated

HERE = {
    "/tmp/": "/tmp/pytest/tmp/",
    "9400": "39464",
    "9464": "40001",
    "kafka:19092": "127.0.0.1:9400",
    "ab94009464": "token",
}


def test_each_address_is_replaced_once() -> None:
    """Ports, paths and addresses, alone or within a text; what stands for one is not replaced again."""
    assert translated("9400", HERE) == "39464"
    assert translated("prometheus:0.0.0.0:9464", HERE) == "prometheus:0.0.0.0:40001"
    assert translated("urlopen('http://127.0.0.1:9400/healthz')", HERE) == "urlopen('http://127.0.0.1:39464/healthz')"
    assert translated("kafka:19092,/tmp/x", HERE) == "127.0.0.1:9400,/tmp/pytest/tmp/x"


def test_a_secret_that_contains_a_port_s_number_is_left_alone() -> None:
    """A random secret in base 16 may have the digits of a port; one that is replaced is replaced as a whole."""
    for secret in ("c94003", "9400e", "f9464", "94009464"):
        assert translated(secret, HERE) == secret
    assert translated("ab94009464", HERE) == "token"
