"""What is done with a resource that is there already: by its mark, and by what a person did to it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tallystream_dashboards.grafana.push import fingerprints as marks
from tallystream_dashboards.grafana.push.model import JSON, FoundDashboard, Kind

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.push.fingerprints import Mark

Hands = Literal["refuse", "keep", "overwrite"]
"""What becomes of what a person changed: the whole push is refused, it stays as it is, or it is written over."""

PROVISIONED = "it is provisioned from a file or by another program: change it there, or push with another --uid-prefix"
ADOPTED = "nothing differs, and it is this command's from now on"
INTERRUPTED = "an earlier push was interrupted"
HANDS: dict[Hands, Kind] = {"refuse": Kind.REFUSED, "keep": Kind.KEPT, "overwrite": Kind.UPDATE}

Verdict = tuple[Kind, str]


def datasource_verdict(was: JSON, mark: Mark, *, same: bool, hands: Hands) -> Verdict:
    """Judge a data source by its mark, the new one, and whether it is the same as what is wanted."""
    if was.get("readOnly"):
        return Kind.BLOCKED, PROVISIONED
    made = marks.digest(marks.plain_datasource(was))
    return _verdict(marks.datasource_mark(was), mark, made, same=same, hands=hands)


def dashboard_verdict(was: FoundDashboard, owner: str, wanted: str, *, same: bool, hands: Hands) -> Verdict:
    """Judge a dashboard by the message of its newest version, and by its folder."""
    if was.provisioned:
        return Kind.BLOCKED, PROVISIONED
    moved = "" if was.folder_uid == owner else "it was moved to another folder"
    saved = " ".join(
        part for part in ("it was last saved", was.by and f"by {was.by}", was.at and f"at {was.at}") if part
    )
    known = marks.pushed(was.message)
    mark = None if known is None else marks.Mark(owner, known, made="")
    return _verdict(mark, marks.Mark(owner, wanted), moved, same=same, hands=hands, told=moved or saved)


def group_verdict(was: JSON, mark: Mark, *, same: bool, moved: str, hands: Hands) -> Verdict:
    """Judge a rule group by its rules' marks. `moved` tells of a rule that is elsewhere now."""
    if any(rule.get("provenance") for rule in was.get("rules") or []):
        return Kind.BLOCKED, PROVISIONED
    made = moved or marks.digest(marks.plain_group(was))
    return _verdict(marks.group_mark(was), mark, made, same=same, hands=hands, told=moved)


def _verdict(known: Mark | None, mark: Mark, made: str, *, same: bool, hands: Hands, told: str = "") -> Verdict:
    """Compare the mark that is there with the new one, and what it says was made with what is there."""
    mine = known is not None and known.owner == mark.owner
    if known is not None and mine:
        if known.made == made:
            return (Kind.UNCHANGED if known.wanted == mark.wanted else Kind.UPDATE), ""
        if known.made == marks.PENDING:
            return Kind.UPDATE, INTERRUPTED
    if same:
        return Kind.UPDATE, ADOPTED
    reason = "it was changed since the last push" if mine else "it is not as a push left it"
    return HANDS[hands], f"{reason}: {told}" if told else reason
