"""What a push is made of: what Grafana has, and the actions that make it what is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.difference import Change

JSON = dict[str, Any]


class PushRefusedError(TallystreamError):
    """Nothing was pushed: a person changed what would be overwritten, or something stands in the way."""


class PushFailedError(TallystreamError):
    """Grafana failed in the midst; the message says what was done. The same command can be run again."""


class What(StrEnum):
    """The kinds of resources, in the order in which they are pushed: each needs only what comes before it."""

    FOLDER = "folder"
    DATASOURCE = "data source"
    CONTACT = "contact point"
    DASHBOARD = "dashboard"
    RULES = "rule group"


class Kind(StrEnum):
    """What is done with a resource. REFUSED: only if it is to be overwritten; BLOCKED: not in any case."""

    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    REFUSED = "refused"
    BLOCKED = "blocked"


WRITES = frozenset({Kind.CREATE, Kind.UPDATE, Kind.REMOVE})
STOPS = frozenset({Kind.REFUSED, Kind.BLOCKED})


@dataclass(frozen=True, slots=True)
class FoundDashboard:
    """A dashboard that is there. `message` is that of its newest version, empty where a person saved it."""

    model: JSON
    folder_uid: str
    message: str
    provisioned: bool = False
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What is there of what is wanted, and of what an earlier push made. All in the shapes of Grafana's HTTP API.

    Args:
        folder: None where there is none of that uid.
        datasources: by uid, every one that Grafana has.
        dashboards: by uid, the wanted ones wherever they are, and all in the folder.
        rule_groups: by title, all in the folder.
        rule_places: the folder and group of every rule there is, by uid.
        contact_points: every one that Grafana has.
    """

    folder: JSON | None = None
    datasources: dict[str, JSON] = field(default_factory=dict)
    dashboards: dict[str, FoundDashboard] = field(default_factory=dict)
    rule_groups: dict[str, JSON] = field(default_factory=dict)
    rule_places: dict[str, tuple[str, str]] = field(default_factory=dict)
    contact_points: list[JSON] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Action:
    """What is done with one resource, and why.

    Args:
        name: its title or name, for people.
        body: what is written, with secrets filled in; it is never shown.
        was: what is there.
        changes: what differs, path by path, without a secret.
        reason: why it is refused, kept, blocked or written although nothing differs: the end of a sentence.
    """

    kind: Kind
    what: What
    uid: str
    name: str
    body: JSON = field(default_factory=dict, repr=False)
    was: JSON = field(default_factory=dict, repr=False)
    changes: tuple[Change, ...] = ()
    reason: str = ""
