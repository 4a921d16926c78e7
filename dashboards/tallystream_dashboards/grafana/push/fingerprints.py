"""Fingerprints: how a push recognizes what an earlier push wrote, and whether a person changed it since.

The fingerprint of a dashboard is the message of its newest version: a person who saves it creates a version with
another message. A data source has its fingerprint in `jsonData`, and a rule group in an annotation of each rule. There
it has a digest of the desired resource and one of what Grafana stored, since Grafana adds fields.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_dashboards.grafana.push.difference import is_empty

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.model import JSON

FIELD = "tallystreamPush"
ANNOTATION = "__tallystream_push__"
"""Grafana leaves annotations with names of this form out of notifications."""
NONE = "-"
"""Instead of a digest: there is none, or what Grafana stored is not yet known."""

_MESSAGE = re.compile(r"tallystream dashboards push ([0-9a-f]{16}) at \S+")
_SERVER_FIELDS = frozenset(
    {"id", "orgId", "orgID", "version", "updated", "created", "guid", "provenance", "metadata"}
    | {"typeName", "typeLogoUrl", "readOnly", "accessControl", "apiVersion", "folderId"}
)
"""Fields that Grafana sets."""


class Fingerprint(NamedTuple):
    """The owner (the uid of the folder), and digests of the desired and of the stored resource and of its secrets."""

    owner: str
    desired: str
    stored: str = NONE
    secrets: str = NONE

    def __str__(self) -> str:
        return " ".join(["1", *self])


def parse(text: object) -> Fingerprint | None:
    """Return the fingerprint in a text, None if it has none."""
    parts = text.split(" ") if isinstance(text, str) else []
    return Fingerprint(*parts[1:]) if len(parts) == 5 and parts[0] == "1" else None


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits of SHA-256; empty fields and the order of fields do not change them."""
    text = json.dumps(_without_empty(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def secrets_digest(secrets: JSON, key: str) -> str:
    """Return a digest that shows whether secrets changed, and that tells nothing without the key."""
    text = json.dumps(secrets, sort_keys=True)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()[:16]


def version_message(digest_: str, now: str) -> str:
    """Return the message of a dashboard's version. The time makes it unique."""
    return f"tallystream dashboards push {digest_} at {now}"


def digest_in_message(message: str) -> str | None:
    """Return the digest in a version's message, None if it is not the message of a push."""
    found = _MESSAGE.fullmatch(message)
    return None if found is None else found[1]


def plain_datasource(datasource: JSON) -> JSON:
    """Return a data source without secrets, Grafana's fields and the fingerprint."""
    kept = {key: value for key, value in datasource.items() if key not in _SERVER_FIELDS and key != "secureJsonData"}
    json_data = datasource.get("jsonData") or {}
    return kept | {"jsonData": {key: value for key, value in json_data.items() if key != FIELD}}


def plain_group(group: JSON) -> JSON:
    """Return a rule group without Grafana's fields and the fingerprints."""
    return {"interval": group.get("interval"), "rules": [_plain_rule(rule) for rule in group.get("rules") or []]}


def plain_dashboard(model: JSON) -> JSON:
    """Return a dashboard without Grafana's fields."""
    return {key: value for key, value in model.items() if key not in ("id", "version")}


def of_datasource(datasource: JSON) -> Fingerprint | None:
    """Return the fingerprint of a data source, None if it has none."""
    return parse((datasource.get("jsonData") or {}).get(FIELD))


def of_group(group: JSON) -> Fingerprint | None:
    """Return the fingerprint of a rule group, None unless all of its rules have the same."""
    annotations = {(rule.get("annotations") or {}).get(ANNOTATION) for rule in group.get("rules") or []}
    return parse(annotations.pop()) if len(annotations) == 1 else None


def with_fingerprint(resource: JSON, fingerprint: Fingerprint) -> JSON:
    """Return a data source, or a rule group, with the fingerprint."""
    if "rules" not in resource:
        return resource | {"jsonData": resource["jsonData"] | {FIELD: str(fingerprint)}}
    annotation = {ANNOTATION: str(fingerprint)}
    return resource | {
        "rules": [rule | {"annotations": rule["annotations"] | annotation} for rule in resource["rules"]]
    }


def _plain_rule(rule: JSON) -> JSON:
    annotations = {key: value for key, value in (rule.get("annotations") or {}).items() if key != ANNOTATION}
    return {key: value for key, value in rule.items() if key not in _SERVER_FIELDS} | {"annotations": annotations}


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        items = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if not is_empty(item)}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value
