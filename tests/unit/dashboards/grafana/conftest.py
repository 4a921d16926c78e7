"""The fixtures of the tests of `dashboards push`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.grafana_push import TOKEN, Pusher
from support.grafana_stub import GrafanaStub


@pytest.fixture
def grafana() -> Iterator[GrafanaStub]:
    """An empty stub of Grafana. A request that Grafana would not understand fails the test."""
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.problems == []


@pytest.fixture
def push(grafana: GrafanaStub) -> Pusher:
    """A pusher to the stub."""
    return Pusher(grafana)
