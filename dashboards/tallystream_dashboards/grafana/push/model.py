"""The state of a Grafana server, and the actions that bring it to the desired state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.difference import Change

JSON = dict[str, Any]


class PushRefusedError(TallystreamError):
    """Nothing was pushed: it would overwrite a person's change, or a resource can't be written."""


class PushFailedError(TallystreamError):
    """Grafana failed during the push. The message says what was done; the same command can be run again."""


class ResourceType(StrEnum):
    """The types of resources, in the order in which they are pushed: each needs only those before it."""

    FOLDER = "folder"
    DATASOURCE = "data source"
    CONTACT_POINT = "contact point"
    DASHBOARD = "dashboard"
    RULE_GROUP = "rule group"


class Kind(StrEnum):
    """What happens to a resource. REFUSED needs --overwrite or --keep-changed; no option resolves BLOCKED."""

    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    REFUSED = "refused"
    BLOCKED = "blocked"


WRITES = frozenset({Kind.CREATE, Kind.UPDATE, Kind.REMOVE})


@dataclass(frozen=True, slots=True)
class ServerDashboard:
    """A dashboard on the server. `message` is that of its newest version, empty if a person saved it."""

    model: JSON
    folder_uid: str
    message: str
    provisioned: bool
    updated_by: str
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The resources of a Grafana server, in the form of its HTTP API.

    Args:
        folder: None if no folder has the desired uid.
        datasources: by uid, all of the server's.
        dashboards: by uid, those with a desired uid in any folder, and all in the folder.
        rule_groups: by title, all in the folder.
        rule_groups_of: the folder and the group of every rule, by the rule's uid.
        contact_points: all of the server's.
    """

    folder: JSON | None
    datasources: dict[str, JSON]
    dashboards: dict[str, ServerDashboard]
    rule_groups: dict[str, JSON]
    rule_groups_of: dict[str, tuple[str, str]]
    contact_points: list[JSON]


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to one resource, and why.

    Args:
        name: the resource's title or name.
        body: what is written, including secrets; it is never shown.
        current: the resource on the server.
        changes: the differences by path, without secrets.
        reason: why it is refused, kept, blocked or written without a difference: the end of a sentence.
    """

    kind: Kind
    resource_type: ResourceType
    uid: str
    name: str
    body: JSON = field(default_factory=dict, repr=False)
    current: JSON = field(default_factory=dict, repr=False)
    changes: tuple[Change, ...] = ()
    reason: str = ""

    @property
    def resource(self) -> str:
        """The resource in an output line, as in `dashboard Lag [tallystream-lag]`."""
        uid = "" if self.uid == self.name else f" [{self.uid}]"
        return f"{self.resource_type} {self.name}{uid}"
