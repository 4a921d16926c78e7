"""The marks by which a later push knows what an earlier one made, and whether a person changed it since. Pure.

A dashboard's mark is the message of its newest version: whoever saves it makes a version of his own. A data source
has its mark in `jsonData`, a rule group in an annotation of each rule; there it holds a digest of what was wanted and
one of what Grafana made of it, since Grafana fills in fields of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_dashboards.grafana.push.difference import empty

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.model import JSON

FIELD = "tallystreamPush"
ANNOTATION = "__tallystream_push__"
"""Grafana leaves annotations of this form out of notifications."""
PENDING = "-"
"""In the place of a digest: there is none, or what Grafana made of it is not yet known."""

_MESSAGE = re.compile(r"tallystream dashboards push ([0-9a-f]{16}) at \S+")
_SERVERS = frozenset(
    {"id", "orgId", "orgID", "version", "updated", "created", "guid", "provenance", "metadata"}
    | {"typeName", "typeLogoUrl", "readOnly", "accessControl", "apiVersion", "folderId"}
)
"""Fields that are the server's."""


class Mark(NamedTuple):
    """What a push leaves behind: whose it is (the uid of the folder), and digests: wanted, made of it, its secrets."""

    owner: str
    wanted: str
    made: str = PENDING
    secrets: str = PENDING

    def __str__(self) -> str:
        return " ".join(["1", *self])


def parse(text: object) -> Mark | None:
    """Return the mark that a text is, None where it is none."""
    parts = text.split(" ") if isinstance(text, str) else []
    return Mark(*parts[1:]) if len(parts) == 5 and parts[0] == "1" else None


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits of SHA-256 over the value; empty fields and the order of fields change nothing."""
    text = json.dumps(_filled(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seal(secrets: JSON, key: str) -> str:
    """Return what tells whether secrets are others than before, and is of no use to who lacks the key."""
    text = json.dumps(secrets, sort_keys=True)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()[:16]


def message(wanted: str, now: str) -> str:
    """Return the message of a dashboard's version. The time makes it one of its own."""
    return f"tallystream dashboards push {wanted} at {now}"


def pushed(text: str) -> str | None:
    """Return the digest in a version's message, None where no push wrote it."""
    found = _MESSAGE.fullmatch(text)
    return None if found is None else found[1]


def plain_datasource(one: JSON) -> JSON:
    """Return a data source without what is the server's, and without the mark."""
    kept = {key: value for key, value in one.items() if key not in _SERVERS and key != "secureJsonData"}
    return kept | {"jsonData": {key: value for key, value in (one.get("jsonData") or {}).items() if key != FIELD}}


def plain_group(one: JSON) -> JSON:
    """Return a rule group without what is the server's, and without the marks."""
    return {"interval": one.get("interval"), "rules": [_plain_rule(rule) for rule in one.get("rules") or []]}


def plain_dashboard(model: JSON) -> JSON:
    """Return a dashboard without what is the server's."""
    return {key: value for key, value in model.items() if key not in ("id", "version")}


def datasource_mark(one: JSON) -> Mark | None:
    """Return the mark of a data source, None where it has none."""
    return parse((one.get("jsonData") or {}).get(FIELD))


def group_mark(one: JSON) -> Mark | None:
    """Return the mark of a rule group, None where not all of its rules have the same."""
    found = {(rule.get("annotations") or {}).get(ANNOTATION) for rule in one.get("rules") or []}
    return parse(found.pop()) if len(found) == 1 else None


def mark_datasource(one: JSON, mark: Mark) -> JSON:
    """Return the data source with the mark."""
    return one | {"jsonData": {**(one.get("jsonData") or {}), FIELD: str(mark)}}


def mark_group(one: JSON, mark: Mark) -> JSON:
    """Return the rule group with the mark in every rule."""
    annotations = {ANNOTATION: str(mark)}
    return one | {
        "rules": [rule | {"annotations": {**(rule.get("annotations") or {}), **annotations}} for rule in one["rules"]]
    }


def _plain_rule(rule: JSON) -> JSON:
    annotations = {key: value for key, value in (rule.get("annotations") or {}).items() if key != ANNOTATION}
    return {key: value for key, value in rule.items() if key not in _SERVERS} | {"annotations": annotations}


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        filled = {key: _filled(one) for key, one in value.items()}
        return {key: one for key, one in filled.items() if not empty(one)}
    return [_filled(one) for one in value] if isinstance(value, list) else value
