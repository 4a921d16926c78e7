"""Pushing to the stub of Grafana, and what a person does there meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.grafana_made import SECRETS, made
from tallystream_dashboards.grafana.push.job import PushSettings, run
from tallystream_dashboards.grafana.push.model import PushFailedError, PushRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.grafana_stub import GrafanaStub
    from tallystream_dashboards.grafana.resources import Resources
    from tallystream_dashboards.grafana.settings import Settings


class Pusher:
    """Pushes, and keeps what was said; `pushed` returns the writes that it took."""

    def __init__(self, grafana: GrafanaStub) -> None:
        self.grafana, self.said, self.code = grafana, "", 0

    def __call__(self, make: Callable[[Settings], Resources] | None = None, **options: Any) -> list[str]:
        """Push, and return what was written; no secret is in what was said."""
        self.grafana.writes.clear()
        lines: list[str] = []
        env = options.pop("env", SECRETS)
        settings = PushSettings(url=self.grafana.url, **options)
        try:
            self.code = run(settings, lines.append, env=env, make=make or made())
        finally:
            self.said = "\n".join(lines)
            assert not any(secret in self.said for secret in SECRETS.values())
        return list(self.grafana.writes)

    def refused(self, make: Callable[[Settings], Resources] | None = None, **options: Any) -> str:
        """Push what is refused, and return why; nothing was written."""
        with pytest.raises(PushRefusedError) as raised:
            self(make, **options)
        assert self.grafana.writes == []
        return str(raised.value)

    def failed(self, **options: Any) -> str:
        """Push what fails in the midst, and return what is said then."""
        with pytest.raises(PushFailedError) as raised:
            self(**options)
        return str(raised.value)


def by_hand(grafana: GrafanaStub, uid: str, title: str) -> None:
    """Save a dashboard with another title, as a person does on the page."""
    was = grafana.store.dashboards[uid]
    body = {"dashboard": was["dashboard"] | {"title": title}, "folderUid": was["meta"]["folderUid"], "message": ""}
    assert grafana.store.save_dashboard(body, "anna")[0] == 200


def rule_by_hand(grafana: GrafanaStub, uid: str, **fields: Any) -> None:
    """Change a rule as a person does on the page."""
    grafana.store.rules[uid] |= fields
