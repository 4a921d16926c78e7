"""A stub of Grafana, and what pushes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.grafana_made import TOKEN
from support.grafana_pushing import Pusher
from support.grafana_stub import GrafanaStub

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def grafana() -> Iterator[GrafanaStub]:
    """A Grafana that has nothing of ours; whatever it would not understand fails the test."""
    with GrafanaStub(TOKEN) as stub:
        yield stub
    assert stub.problems == []


@pytest.fixture
def push(grafana: GrafanaStub) -> Pusher:
    """What pushes to the stub."""
    return Pusher(grafana)
