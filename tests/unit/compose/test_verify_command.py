"""`tallystream verify`: its output and its options, without a broker."""

from __future__ import annotations

import io
import json

from tallystream_aggregator.verify.check import Difference, Outcome
from tallystream_cli.commands.verify import MAX_ROWS, Progress, as_dict, as_text, notes, summary

IDENTITY = ("orders", "counter", "[b]processed", (("topic", "orders"),))
DIFFERENCES = [
    Difference(IDENTITY, "count", 8, 7, {"metrics:0": 5, "metrics:1": 9}),
    Difference(None, "dead letters", "1, metrics, partition 0, offset 3", None, None),
]


def test_the_summary_says_what_was_compared() -> None:
    """It has the numbers of sums, dead letters, events and records, and the offsets up to which they were read."""
    outcome = Outcome({"metrics:1": 9, "metrics:0": 1005}, records=1014, sums=3, letters=2, events=1)
    assert summary(outcome) == (
        "all agree: 3 sums, 2 dead letters, 1 events, 1,014 records (partition: next offset 0: 1,005, 1: 9)"
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
