"""`tallystream dashboards push`: bring everything into a Grafana server. docs/grafana-push.md tells how it behaves."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.address import ClientCertificate
from tallystream_dashboards.grafana.push import report
from tallystream_dashboards.grafana.push.apply import apply
from tallystream_dashboards.grafana.push.client import TOKEN, Grafana
from tallystream_dashboards.grafana.push.model import Kind, PushRefusedError
from tallystream_dashboards.grafana.push.plan import plan
from tallystream_dashboards.grafana.push.read import read
from tallystream_dashboards.grafana.push.report import missing
from tallystream_dashboards.grafana.push.secrets import Secrets
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tallystream_dashboards.grafana.push.plan import OnManualChange
    from tallystream_dashboards.grafana.resources import Resources

__all__ = ["PushSettings", "run"]

SECRET = ("url", "secureJsonData")
"""The fields of a data source in which `$NAME` refers to the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """What `tallystream dashboards push` needs; the token comes from the environment.

    Args:
        url: the Grafana server.
        made: what is pushed.
        dry_run: say what a push would do, and write nothing.
        prune: remove what an earlier push made and is no longer generated.
        hands: what becomes of what a person changed since the last push.
        ca_file: certificates to trust instead of the system's.
    """

    url: str
    made: Settings = field(default_factory=Settings)
    dry_run: bool = False
    prune: bool = False
    on_manual_change: OnManualChange = "refuse"
    ca_file: Path | None = None


def run(
    settings: PushSettings,
    say: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    make: Callable[[Settings], Resources] = resources,
) -> int:
    """Push, and return 0; or, of a dry run, 0 where a push would go through and 1 where it would be refused.

    Idempotent: a second push writes nothing. All is read and planned before anything is written. `env` is the
    environment, and `make` generates what is pushed.

    Raises:
        ConfigError: the address, the token, its permissions or a secret is not what it should be; nothing was written.
        PushRefusedError: a person changed what would be overwritten; nothing was written.
        PushFailedError: Grafana failed in the midst; the message says what was done.
    """
    env = os.environ if env is None else env
    secrets = Secrets(env)
    token = secrets.get(TOKEN, "set it to the token of a service account")
    wanted = make(settings.made)
    filled = _filled(wanted, secrets)
    client = ClientCertificate.parse(
        "GRAFANA",
        env.get("GRAFANA_CERT_FILE", ""),
        env.get("GRAFANA_KEY_FILE", ""),
        env.get("GRAFANA_KEY_PASSWORD", ""),
    )
    grafana = Grafana(settings.url, token, secrets, settings.ca_file, client)
    allowed = grafana.connect()
    actions = plan(
        wanted,
        filled,
        read(grafana, wanted),
        key=token,
        prune=settings.prune,
        on_manual_change=settings.on_manual_change,
    )
    refused = report.refusal(actions)
    lacking = [] if allowed is None else missing(actions, allowed)
    if lacking:
        raise ConfigError(TOKEN, "***", f"its service account lacks {', '.join(lacking)}: give it the role Admin")
    if settings.dry_run:
        for line in report.lines(actions, differences=True):
            say(line)
        say(refused or report.summary(actions, dry=True))
        return 1 if refused else 0
    if refused:
        raise PushRefusedError(refused)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for line in report.lines([action for action in actions if action.kind is Kind.KEPT], differences=False):
        say(line)
    apply(
        grafana, actions, wanted.folder["uid"], now=now, done=lambda one: say(*report.lines([one], differences=False))
    )
    say(report.summary(actions, dry=False))
    return 0


def _filled(wanted: Resources, secrets: Secrets) -> Resources:
    """Return the resources with their secrets. A `$` elsewhere is a variable of Grafana's."""
    datasources = [
        one | secrets.filled({name: one[name] for name in SECRET if name in one}) for one in wanted.datasources
    ]
    contact = wanted.contact_point | {"settings": secrets.filled(wanted.contact_point["settings"])}
    return replace(wanted, datasources=datasources, contact_point=contact)
