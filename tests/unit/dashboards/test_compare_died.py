"""Which instances and producers died, as `tallystream compare` names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.printed import NOW_MS, compared, counted, of_group, position, processed, sent
from support.stores import write
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)


def of_instance(name: str, instance: str, life: str, count: int, ago_s: int, **fields: bool) -> Point:
    tags = {"app": instance.partition("-")[0], "metric_type": "counter", "instance": instance}
    return Point(f"instance:{name}", tags, {"count": count, "life": life, **fields}, NOW_MS - ago_s * 1000)


@pytest.mark.parametrize(
    ("living", "sentence"),
    [
        pytest.param(0, "instance billing-2 died with at most 25 unreported.", id="all died"),
        pytest.param(
            3,
            "instance billing-2 died with at most 25 unreported; the others in work, or by a process that was killed.",
            id="others work",
        ),
    ],
)
def test_the_instance_that_died_is_named(store: StoreSettings, living: int, sentence: str) -> None:
    """The points of single instances tell which life took records and never counted them. A living one works."""
    write(store, [*sent(1000), *processed(900, 900, 925 + living)])
    for instance, life, number in (("billing-1", "a", 500), ("billing-2", "b", 400)):
        for ago_s in range(120, 59 if life == "b" else -1, -10):
            extra = 25 if life == "b" else living
            write(store, [of_instance("billing.processed", instance, life, number, ago_s)])
            write(store, [of_instance("billing.processed.taken", instance, life, number + extra, ago_s)])
    _, lines = compared(store, "orders.sent", "billing.processed")
    assert f"{25 + living} records were taken and not counted: {sentence}" in lines
    names = ("billing.processed", "billing.processed.taken")
    write(store, [of_instance(name, "billing-2", "c", 0, 0) for name in names])
    _, lines = compared(store, "orders.sent", "billing.processed")
    assert f"{25 + living} records were taken and not counted: {sentence}" in lines
    write(store, [of_instance(name, "billing-2", "c", number, 0) for name, number in zip(names, (25, 0), strict=True)])
    _, lines = compared(store, "orders.sent", "billing.processed")
    assert not any("billing-2" in line for line in lines)


def test_processes_that_share_an_instance_have_not_died(store: StoreSettings) -> None:
    """A life ends when another one begins after it, or when it is silent. What works meanwhile is in work."""
    write(store, [*sent(1000), *processed(900, 900, 927)])
    for life, number, extra in (("a", 500, 20), ("b", 400, 7)):
        for ago_s in range(121 if life == "a" else 120, -1, -10):
            write(store, [of_instance("billing.processed", "billing-1", life, number, ago_s)])
            write(store, [of_instance("billing.processed.taken", "billing-1", life, number + extra, ago_s)])
    _, lines = compared(store, "orders.sent", "billing.processed")
    assert "27 records were taken and not counted: in work, or by a process that was killed." in lines


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ("Sent and in flight are as far as", "died, and may have sent more.")),
        ({"group": "billing"}, ("25 offsets are after the last one", "died with at most 25 unreported; or of ")),
    ],
    ids=["positions", "offsets"],
)
def test_the_producer_that_died_is_named(store: StoreSettings, options: dict[str, str], words: tuple[str, str]) -> None:
    """A life that was followed by another one, or fell silent, without a final report may have sent more.

    One that has ended, or reports, has not died.
    """
    write(store, [*sent(1000), *processed(1000, 1000, 1000), of_group(0, 1025, 1000, 5000)])
    for instance, life, number, until_s, fields in (
        ("orders-1", "a", 500, 0, {}),
        ("orders-2", "b", 200, 70, {}),
        ("orders-2", "c", 100, 0, {}),
        ("orders-3", "d", 100, 70, {"final": True}),
        ("orders-4", "e", 100, 70, {}),
    ):
        for ago_s in range(until_s + 60, until_s - 1, -10):
            final = fields if ago_s == until_s else {}
            write(store, [of_instance("orders.sent", instance, life, number, ago_s, **final)])
    _, lines = compared(store, "orders.sent", "billing.processed", **options)
    (line,) = (line for line in lines if "orders-" in line)
    assert line.startswith(words[0])
    assert f": instances orders-2, orders-4 {words[1]}" in line


def test_the_producer_that_died_is_named_where_offsets_have_no_record(store: StoreSettings) -> None:
    """Those who sent later show that there are more offsets than records were counted as sent."""
    write(store, [counted("orders.sent", 980), position("orders.sent.position", "0", 0, 1000)])
    write(store, processed(1000, 1000, 1000))
    write(store, [of_instance("orders.sent", "orders-2", "b", 200, ago_s) for ago_s in range(200, 59, -10)])
    _, lines = compared(store, "orders.sent", "billing.processed")
    (line,) = (line for line in lines if line.startswith("20 offsets have no record"))
    assert ": instance orders-2 died with at most 20 unreported; or of transactions, other producers" in line


def test_names_in_sentences_are_text(store: StoreSettings) -> None:
    """Escape sequences and newlines in the name of an instance that died, and in that of a counter, are escaped."""
    write(store, [*sent(1000), *processed(900, 900, 925), counted("a\x1b[2J\nb", 5), *sent(5)])
    write(store, [position("a\x1b[2J\nb.position", "0", 0, 5)])
    for ago_s in (300, 290):
        for name, number in (("billing.processed", 900), ("billing.processed.taken", 925)):
            write(store, [of_instance(name, "billing-\x1b[2J\n2", "a", number, ago_s)])
    for names, text in ((("billing.processed",), "billing-\\x1b[2J\\n2 died"), ((), "orders/a\\x1b[2J\\nb")):
        _, lines = compared(store, *names)
        assert "".join(lines).isprintable()
        assert any(text in line for line in lines)
