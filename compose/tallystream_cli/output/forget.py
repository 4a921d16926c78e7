"""What `tallystream forget` prints: what is taken out, sum by sum, as tables or JSON on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from tallystream_aggregator.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from tallystream_aggregator.jobs.forget import Changed, Plan
    from tallystream_aggregator.table.outputs import Total

INTERRUPTED = 130
"""The exit code after a signal."""

LIVES = 20
"""How many lives are listed."""

LIVING = "living lives publish absolute values: their next snapshot brings their counts back"
FORGOTTEN = "what the instance's forgotten lives counted stays: it has no instance any more, take it out by metric"


def show(plan: Plan, console: Console, *, of_instance: bool) -> None:
    """Print the lives, the sums as they are and as they will be, and what to know about them."""
    lives = Table("app", "instance", "life", "state", "metrics")
    for one in plan.lives[:LIVES]:
        state = "living" if one.living else "silent"
        lives.add_row(*_texts(one.app, one.instance, one.life, state, str(one.metrics)))
    if plan.lives:
        console.print(lives)
    if len(plan.lives) > LIVES:
        console.print(f"and {len(plan.lives) - LIVES:,} more lives: --json has them all")
    sums = Table("app", "metric", "field", "is", "will be")
    for changed in plan.sums:
        for cells in _cells(changed):
            sums.add_row(*_texts(*cells))
    console.print(sums)
    console.print(Text(f"{len(plan.lives):,} lives and {len(plan.sums):,} sums"))
    if any(one.living for one in plan.lives):
        console.print(Text(LIVING))
    if of_instance:
        console.print(Text(FORGOTTEN))


def _texts(*cells: str) -> list[Text]:
    return [Text(printable(cell)) for cell in cells]


def as_dict(plan: Plan, *, published: bool) -> dict[str, Any]:
    """Return the plan as JSON has it."""
    lives = [one._asdict() for one in plan.lives]
    return {"published": published, "lives": lives, "sums": [_changed(one) for one in plan.sums]}


def _changed(one: Changed) -> dict[str, Any]:
    app, name, kind, tags = one.before.metric
    content = {"app": app, "name": name, "type": kind, "tags": dict(tags)}
    return content | {"is": _fields(one.before), "will_be": _fields(one.after)}


def _fields(total: Total) -> dict[str, Any]:
    known = {field: value for field, value in total.totals.items() if value is not None}
    known |= {"lives": total.lives, "retired": total.retired}
    return known | ({"overflow": True} if total.overflow else {})


def _cells(changed: Changed) -> list[tuple[str, ...]]:
    app, name, kind, tags = changed.before.metric
    labels = "".join(f" {tag}={value}" for tag, value in tags)
    before, after = _fields(changed.before), _fields(changed.after)
    differing = [field for field in (before | after) if before.get(field) != after.get(field)]
    return [
        (app, f"{name}{labels} ({kind})", field, _value(before.get(field)), _value(after.get(field)))
        for field in differing
    ]


def _value(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
