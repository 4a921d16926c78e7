"""The job of `tallystream dashboards push`: write all resources to a Grafana server (docs/grafana-push.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.http import ClientCertificate
from tallystream_dashboards.grafana.push import report
from tallystream_dashboards.grafana.push.apply import apply, missing_permissions
from tallystream_dashboards.grafana.push.client import TOKEN, Grafana
from tallystream_dashboards.grafana.push.model import Kind, PushRefusedError
from tallystream_dashboards.grafana.push.plan import plan
from tallystream_dashboards.grafana.push.read import read
from tallystream_dashboards.grafana.push.secrets import Secrets
from tallystream_dashboards.grafana.resources import resources
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tallystream_dashboards.grafana.push.plan import OnManualChange
    from tallystream_dashboards.grafana.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """The settings of `tallystream dashboards push`; secrets come from the environment."""

    url: str
    generate: Settings = field(default_factory=Settings)
    dry_run: bool = False
    prune: bool = False
    on_manual_change: OnManualChange = "refuse"
    ca_file: Path | None = None


def run(
    settings: PushSettings,
    output: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    generate: Callable[[Settings], Resources] = resources,
) -> int:
    """Push, and return 0. A dry run returns 1 if the push would be refused.

    It reads and plans everything before it writes; a second push writes nothing. `env` is the environment, by default
    that of the process; `generate` returns what is pushed.

    Raises:
        ConfigError: the URL, the token, its permissions or a secret can't be used; nothing was written.
        PushRefusedError: a push would overwrite a person's change, or can't write a resource; nothing was written.
        PushFailedError: Grafana failed during the push; the message says what was done.
    """
    env = os.environ if env is None else env
    secrets = Secrets(env)
    token = secrets.get(TOKEN, "set it to the token of a service account")
    desired = generate(settings.generate)
    with_secrets = _resolve_secrets(desired, secrets)
    certificate = ClientCertificate.parse(env, "GRAFANA_CERT_FILE", "GRAFANA_KEY_FILE", "GRAFANA_KEY_PASSWORD")
    grafana = Grafana(settings.url, token, secrets, settings.ca_file, certificate)
    granted = grafana.permissions()
    actions = plan(
        desired,
        with_secrets,
        read(grafana, desired),
        key=token,
        prune=settings.prune,
        on_manual_change=settings.on_manual_change,
    )
    missing = [] if granted is None else missing_permissions(actions, granted)
    if missing:
        raise ConfigError(TOKEN, "***", f"its service account lacks {', '.join(missing)}: give it the role Admin")
    refusal = report.refusal(actions)
    if settings.dry_run:
        for line in report.lines(actions, differences=True):
            output(line)
        output(refusal or report.summary(actions, dry_run=True))
        return 1 if refusal else 0
    if refusal:
        raise PushRefusedError(refusal)
    for line in report.lines(action for action in actions if action.kind is Kind.KEPT):
        output(line)
    apply(
        grafana,
        actions,
        desired.folder["uid"],
        now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        on_done=lambda action: output(*report.lines([action])),
    )
    output(report.summary(actions, dry_run=False))
    return 0


def _resolve_secrets(desired: Resources, secrets: Secrets) -> Resources:
    """Return the resources with secrets instead of references. In other fields a `$` is a variable of Grafana's."""
    datasources = [
        datasource
        | {name: secrets.resolve(datasource[name]) for name in ("url", "secureJsonData") if name in datasource}
        for datasource in desired.datasources
    ]
    contact_point = desired.contact_point | {"settings": secrets.resolve(desired.contact_point["settings"])}
    return replace(desired, datasources=datasources, contact_point=contact_point)
