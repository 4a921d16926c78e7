"""Carry out the actions of a plan, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tallystream.errors import TallystreamError
from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.client import AbsentError
from tallystream_dashboards.grafana.push.model import JSON, WRITES, Action, Kind, PushFailedError, What
from tallystream_dashboards.grafana.push.read import read_datasource, read_group
from tallystream_dashboards.grafana.push.report import named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_dashboards.grafana.push.client import Grafana

AGAIN = "Run the same command again when that is fixed: it goes on from here."


def apply(
    grafana: Grafana, actions: Sequence[Action], folder_uid: str, *, now: str, done: Callable[[Action], None]
) -> None:
    """Carry out the actions in their order; `done` is told of each that is through. `now` goes into messages.

    Delivery: at least once; an action that is carried out again changes nothing.

    Raises:
        PushFailedError: one failed; it says what was done before, and the actions after it are not done.
    """
    todo = [action for action in actions if action.kind in WRITES]
    writer = _Writer(grafana, folder_uid, now)
    for number, action in enumerate(todo):
        try:
            writer.write(action)
        except TallystreamError as error:
            before = ", ".join(named(one) for one in todo[:number]) or "nothing"
            left = ", ".join(named(one) for one in todo[number:])
            raise PushFailedError(
                f"{action.kind} {named(action)}: {error} Done: {before}. Not done: {left}. {AGAIN}"
            ) from error
        done(action)


class _Writer:
    def __init__(self, grafana: Grafana, folder_uid: str, now: str) -> None:
        self._grafana, self._folder_uid, self._now = grafana, folder_uid, now
        self._alerting = grafana.api.alertingprovisioning

    def write(self, action: Action) -> None:
        """Carry out one action."""
        if action.kind is Kind.REMOVE:
            self._remove(action)
            return
        {
            What.FOLDER: self._folder,
            What.DATASOURCE: self._datasource,
            What.CONTACT: self._contact,
            What.DASHBOARD: self._dashboard,
            What.RULES: self._rules,
        }[action.what](action)

    def _call(self, doing: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return self._grafana.call(doing, function, *arguments, **named)

    def _folder(self, action: Action) -> None:
        folder = self._grafana.api.folder
        if action.kind is Kind.CREATE:
            self._call("create a folder", folder.create_folder, action.name, uid=action.uid)
        else:
            self._call("rename the folder", folder.update_folder, action.uid, title=action.name, overwrite=True)

    def _datasource(self, action: Action) -> None:
        source = self._grafana.api.datasource
        if action.kind is Kind.CREATE:
            self._call("create a data source", source.create_datasource, action.body)
        else:
            # With the version that was read, Grafana refuses if somebody has changed it meanwhile.
            body = action.body | {"version": action.was.get("version")}
            self._call("change a data source", source.update_datasource_by_uid, action.uid, body)
        made = read_datasource(self._grafana, action.uid)
        body = _marked(action.body, marks.datasource_mark, marks.mark_datasource, marks.plain_datasource(made))
        body |= {"version": made.get("version")}
        self._call("change a data source", source.update_datasource_by_uid, action.uid, body)

    def _contact(self, action: Action) -> None:
        if action.kind is Kind.CREATE:
            create = self._alerting.create_contactpoint
            self._call("create a contact point", create, action.body, disable_provenance=True)
        else:
            update = self._alerting.update_contactpoint
            self._call("change a contact point", update, action.uid, action.body, disable_provenance=True)

    def _dashboard(self, action: Action) -> None:
        body = {
            "dashboard": {**action.body, "id": None, "version": action.was.get("version", 0)},
            "folderUid": self._folder_uid,
            "message": marks.message(marks.digest(action.body), self._now),
            "overwrite": False,  # Grafana refuses if somebody has saved it meanwhile
        }
        self._call("save a dashboard", self._grafana.api.dashboard.update_dashboard, body)

    def _rules(self, action: Action) -> None:
        title = quote(action.name, safe="")
        update = self._alerting.update_rule_group

        def put(group: JSON) -> None:
            doing = "change a rule group"
            self._call(doing, update, self._folder_uid, title, group, disable_provenance=True)

        put(action.body)
        made = read_group(self._grafana, self._folder_uid, action.name)
        put(_marked(action.body, marks.group_mark, marks.mark_group, marks.plain_group(made or {})))

    def _remove(self, action: Action) -> None:
        api = self._grafana.api
        if action.what is What.RULES:
            uids, delete = [rule["uid"] for rule in action.was["rules"]], self._alerting.delete_alertrule
        elif action.what is What.DASHBOARD:
            uids, delete = [action.uid], api.dashboard.delete_dashboard
        else:
            uids, delete = [action.uid], api.datasource.delete_datasource_by_uid
        for uid in uids:
            try:
                self._call(f"remove a {action.what}", delete, uid)
            except AbsentError:
                continue  # somebody was quicker


def _marked(
    body: JSON, mark_of: Callable[[JSON], marks.Mark | None], marked: Callable[[JSON, marks.Mark], JSON], made: JSON
) -> JSON:
    """Return what was written with the digest of what Grafana made of it in its mark."""
    mark = mark_of(body)
    if mark is None:
        raise AssertionError("what is pushed has a mark")
    return marked(body, mark._replace(made=marks.digest(made)))
