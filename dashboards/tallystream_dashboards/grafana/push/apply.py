"""Carry out the actions of a plan, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.client import AbsentError
from tallystream_dashboards.grafana.push.model import JSON, WRITES, Action, Kind, PushFailedError, What
from tallystream_dashboards.grafana.push.read import group_path, read_datasource, read_group
from tallystream_dashboards.grafana.push.report import named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_dashboards.grafana.push.client import Grafana

AGAIN = "Run the same command again when that is fixed: it continues from here."


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

    def _folder(self, action: Action) -> None:
        if action.kind is Kind.CREATE:
            self._grafana.ask("create a folder", "POST", "/folders", {"title": action.name, "uid": action.uid})
        else:
            body = {"title": action.name, "overwrite": True}
            self._grafana.ask("rename the folder", "PUT", f"/folders/{action.uid}", body)

    def _datasource(self, action: Action) -> None:
        path = f"/datasources/uid/{action.uid}"
        if action.kind is Kind.CREATE:
            self._grafana.ask("create a data source", "POST", "/datasources", action.body)
        else:
            # With the version that was read, Grafana refuses if somebody has changed it meanwhile.
            body = action.body | {"version": action.was.get("version")}
            self._grafana.ask("change a data source", "PUT", path, body)
        made = read_datasource(self._grafana, action.uid)
        body = _marked(action.body, marks.datasource_mark, marks.mark_datasource, marks.plain_datasource(made))
        self._grafana.ask("change a data source", "PUT", path, body | {"version": made.get("version")})

    def _contact(self, action: Action) -> None:
        path = "/v1/provisioning/contact-points"
        if action.kind is Kind.CREATE:
            self._grafana.ask("create a contact point", "POST", path, action.body, editable=True)
        else:
            self._grafana.ask("change a contact point", "PUT", f"{path}/{action.uid}", action.body, editable=True)

    def _dashboard(self, action: Action) -> None:
        body = {
            "dashboard": {**action.body, "id": None, "version": action.was.get("version", 0)},
            "folderUid": self._folder_uid,
            "message": marks.message(marks.digest(action.body), self._now),
            "overwrite": False,  # Grafana refuses if somebody has saved it meanwhile
        }
        self._grafana.ask("save a dashboard", "POST", "/dashboards/db", body)

    def _rules(self, action: Action) -> None:
        path = group_path(self._folder_uid, action.name)
        self._grafana.ask("change a rule group", "PUT", path, action.body, editable=True)
        made = read_group(self._grafana, self._folder_uid, action.name)
        body = _marked(action.body, marks.group_mark, marks.mark_group, marks.plain_group(made or {}))
        self._grafana.ask("change a rule group", "PUT", path, body, editable=True)

    def _remove(self, action: Action) -> None:
        uids = [rule["uid"] for rule in action.was["rules"]] if action.what is What.RULES else [action.uid]
        paths = {What.RULES: "/v1/provisioning/alert-rules", What.DASHBOARD: "/dashboards/uid"}
        for uid in uids:
            try:
                path = f"{paths.get(action.what, '/datasources/uid')}/{uid}"
                self._grafana.ask(f"remove a {action.what}", "DELETE", path)
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
