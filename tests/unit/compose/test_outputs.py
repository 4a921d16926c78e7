"""What top and verify print."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.lag import Rounds, group, round_of
from support.levels import sum_point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_aggregator.verify.check import Difference, Outcome
from tallystream_cli import main
from tallystream_cli.commands.verify import MAX_ROWS, Progress, as_dict, as_text, notes, summary
from tallystream_dashboards.terminal.top import read_overview, screen

LONG = "a-group-with-a-name-that-is-much-too-long-for-one-column-of-a-terminal-"


def fill(path: Path, *, stopped: bool, groups: int = 1, sums: int = 2) -> str:
    """Return a store of now, with a group of which all is consumed or that has stopped, and with growing sums."""
    store = LocalStore(path, retention_ms=0)
    store.setup()
    now_ms = round(time.time() * 1000)
    rounds = Rounds()
    for ago in range(300, -1, -2):
        end = 9_900 - ago * 10
        committed = min(9_020, end) if stopped else end
        others = [group(f"{LONG}{number}", (end, end), topic=f"t{number}") for number in range(groups - 1)]
        billing = group("billing", (committed, end), members=0 if stopped else 1)
        store.write(rounds.points(round_of(billing, *others), now_ms - ago * 1000))
    for number in range(sums):
        for ago in (90, 1):
            point = sum_point(
                "counter", (100 - ago) * number, now_ms - ago * 1000, name=f"sum.{number:02}", tags={"t": LONG}
            )
            store.write([point])
    store.close()
    return f"local:{path}"


def test_one_screen_has_the_answer_the_groups_and_the_sums(tmp_path: Path) -> None:
    """Without a terminal one screen is printed: what is not well first, then groups, then sums, the fastest first."""
    shown = CliRunner().invoke(main.app, ["top", "--store", fill(tmp_path / "store.db", stopped=True)])
    assert shown.exit_code == 1
    title, answer, more, empty, head, billing, _, sums, first, second = shown.stdout.splitlines()
    assert title.startswith("Tallystream ")
    assert answer.startswith("Group billing is ERR for ")
    assert ": STOP in orders/0" in answer
    assert more.endswith("has no members.")
    assert empty == ""
    assert head.split() == ["STATUS", "LAG", "TIME", "LAG", "CATCHES", "UP", "IN", "GROUP"]
    assert billing.split()[:2] == ["ERR", "880"]
    assert billing.endswith("never at this rate  billing")
    assert sums.split() == ["VALUE", "RATE/S", "LIVING", "APP", "SUM"]
    assert "sum.01 t=a-group" in first
    assert "sum.00 t=a-group" in second


def test_everything_is_well(tmp_path: Path) -> None:
    """The first answer says so if no group is WARN or ERR, and lag is collected; as on the page, also without sums."""
    for number, answer in (2, ""), (0, "No application has reported yet."):
        store = fill(tmp_path / f"{number}.db", stopped=False, sums=number)
        shown = CliRunner().invoke(main.app, ["top", "--store", store, "--once"])
        assert shown.stdout.splitlines()[1:3] == ["Everything is well. Groups: 1, none WARN or ERR.", answer]
        assert shown.exit_code == 0


def test_json_has_the_same(tmp_path: Path) -> None:
    """One object, with the groups as in `lag --json` and the sums as in `sums --json`."""
    shown = CliRunner().invoke(main.app, ["top", "--store", fill(tmp_path / "store.db", stopped=True), "--json"])
    found = json.loads(shown.stdout)
    assert found["well"] is False
    assert found["problems"][0].startswith("Group billing is ERR")
    assert [(one["group"], one["lag"]) for one in found["groups"]] == [("billing", 880)]
    assert [one["name"] for one in found["sums"]] == ["sum.01", "sum.00"]
    assert found["sums"][0]["rate"] > 1


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_it_fits_the_terminal(tmp_path: Path, columns: int, lines: int) -> None:
    """A screen with the line of the cursor has the terminal's lines, and no line is longer than its columns."""
    store = StoreSettings.parse(fill(tmp_path / "store.db", stopped=True, groups=40, sums=40))
    reader = open_store(store)
    shown = screen(read_overview(reader, round(time.time() * 1000)), columns, lines).splitlines()
    reader.close()
    assert len(shown) == lines - 1
    assert max(map(len, shown)) <= columns
    rows = (lines - 5 - shown.index("")) // 2
    assert [line for line in shown if line.endswith((f"GROUP ({rows} of 40)", f"GROUP ({rows + 1} of 40)"))]


IDENTITY = ("orders", "counter", "[b]processed", (("topic", "orders"),))
DIFFERENCES = [
    Difference(IDENTITY, "count", 8, 7, {"metrics:0": 5, "metrics:1": 9}),
    Difference(None, "dead letters", "1, metrics, partition 0, offset 3", None, None),
]


def test_the_summary_says_what_was_compared() -> None:
    """It has the numbers of sums, dead letters, events and records, and the offsets up to which they were read."""
    outcome = Outcome({"metrics:1": 9, "metrics:0": 1005}, records=1014, sums=3, letters=2, events=1)
    assert summary(outcome) == (
        "all agree: 3 sums, 2 dead letters, 1 event, 1,014 records (partition: next offset 0: 1,005, 1: 9)"
    )
    assert notes(outcome) == []
    assert "(partition: next offset a:2: 7, a:10: 8, b:0: 9)" in summary(Outcome({"b:0": 9, "a:10": 8, "a:2": 7}))


def test_the_table_of_differences() -> None:
    """Each row has app, metric, type, tags, field, both values, and the last offsets that were included."""
    text = as_text(Outcome(differences=list(DIFFERENCES)))
    (line,) = [line for line in text.splitlines() if "processed" in line]
    for word in ("orders", "[b]processed topic=orders (counter)", "count", " 8 ", " 7 ", "0: 4, 1: 8"):
        assert word in line
    assert "partition 0, offset 3" in text
    assert "2 differences" in text


def test_the_table_is_limited() -> None:
    """The number of the other differences is printed."""
    text = as_text(Outcome(differences=[*DIFFERENCES[:1] * MAX_ROWS, *DIFFERENCES[1:]]))
    assert "partition 0, offset 3" not in text
    assert "and 1 more: --json has them all" in text


def test_notes_say_what_was_not_compared() -> None:
    """Each kind of record that was not compared has a note with its number."""
    assert notes(Outcome(moved=1, unreadable=1, letters=0, events=0)) == [
        "1 instance has records in several partitions: the events of such instances were not compared",
        "1 record was skipped in metrics-agg: not a sum",
    ]
    found = notes(Outcome(moved=3, unreadable=4))
    assert [note.split()[0] for note in found[:2]] == ["3", "4"]
    assert len(found) == 4


def test_json_has_every_difference() -> None:
    """A missing value is null."""
    content = json.loads(json.dumps(as_dict(Outcome(differences=list(DIFFERENCES)))))
    assert content["agree"] is False
    assert content["differences"][0]["tags"] == {"topic": "orders"}
    assert (content["differences"][0]["published"], content["differences"][0]["replayed"]) == (8, 7)
    assert content["differences"][1]["app"] is None


def test_progress_is_printed_every_few_seconds() -> None:
    """The line has the number of records, of all, and the rate; for a short topic there is none."""
    now, out = [0.0], io.StringIO()
    progress = Progress(out, clock=lambda: now[0])
    progress("records replayed", 1_000, 60_000)
    now[0] = 4.0
    progress("records replayed", 20_000, 60_000)
    assert out.getvalue() == ""
    now[0] = 10.0
    progress("records replayed", 30_000, 60_000)
    progress("records replayed", 31_000, 60_000)
    assert out.getvalue() == "30,000 of 60,000 records replayed, 3,000 a second\n"


def test_names_are_escaped() -> None:
    """Control characters in names are escaped, in the table and in the summary."""
    identity = ("evil\x1b[2J\n", "counter", "x\u202e", (("t", "[red]\x07"),))
    ends = {"metrics\x1b[31m[bold]:0": 5, "b:0": 1}
    text = as_text(Outcome(ends, differences=[Difference(identity, "count", 8, 7, ends)]))
    assert "".join(text.splitlines()).isprintable()
    assert "evil\\x1b[2J\\n" in text
    assert "x\\u202e t=[red]\\x07 (counter)" in text
    assert text.count("metrics\\x1b[31m[bold]:0: ") == 2
