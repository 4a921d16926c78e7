"""A pusher to the stub of Grafana."""

from __future__ import annotations

from typing import Any

import pytest

from support.grafana_stub import GrafanaStub
from tallystream_dashboards.grafana.client import Grafana
from tallystream_dashboards.grafana.push import PushFailedError, PushRefusedError, run
from tallystream_dashboards.grafana.settings import Settings

TOKEN = "glsa_the-token-of-grafana"
ENV = {"GRAFANA_TOKEN": TOKEN}


class Pusher:
    """Pushes to the stub, and keeps the output and the exit code of the last push."""

    def __init__(self, grafana: GrafanaStub) -> None:
        self.grafana, self.output, self.code = grafana, "", 0

    def __call__(
        self, generate: Settings | None = None, *, env: dict[str, str] | None = None, **options: Any
    ) -> list[str]:
        """Push what is generated, and return the writes; the token is not in the output."""
        self.grafana.writes.clear()
        lines: list[str] = []
        try:
            grafana = Grafana(self.grafana.url, env or ENV)
            self.code = run(grafana, generate or Settings(), lines.append, **options)
        finally:
            self.output = "\n".join(lines)
            assert TOKEN not in self.output
        return list(self.grafana.writes)

    def refused(self, generate: Settings | None = None) -> str:
        """Push, and return why it was refused; nothing was written."""
        with pytest.raises(PushRefusedError) as raised:
            self(generate)
        assert self.grafana.writes == []
        return str(raised.value)

    def failed(self, generate: Settings | None = None) -> str:
        """Push, and return the message of its failure."""
        with pytest.raises(PushFailedError) as raised:
            self(generate)
        return str(raised.value)


def save_as_person(grafana: GrafanaStub, uid: str, title: str) -> None:
    """Save a dashboard with another title, as a person does in Grafana."""
    saved = grafana.state.dashboards[uid]
    body = {"dashboard": saved["dashboard"] | {"title": title}, "folderUid": saved["meta"]["folderUid"], "message": ""}
    assert grafana.state.save_dashboard(body, "anna")[0] == 200
