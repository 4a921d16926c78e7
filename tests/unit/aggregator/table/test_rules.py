"""The table's rules one by one, each with a small example. The numbers are those of docs/table.md."""

from __future__ import annotations

import json

import pytest

from support.steps import BEGIN_MS, SECOND, Published, Topic, counter, gauge, publish, run
from tallystream.record import MAX_COUNT
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, StateError, Table, TableSettings, pack, unpack
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.table.state import STATE_VERSION
from tallystream_aggregator.times import DAY_MS


def test_rule_1_a_newer_snapshot_replaces_an_older_one() -> None:
    """Values are absolute: 7 replaces 5, and the sum is 7, not 12."""
    assert Topic().snapshot(counter(5), seq=1).snapshot(counter(7), seq=2).sum().count == 7


@pytest.mark.parametrize("seq", [1, 2])
def test_rule_1_the_same_or_an_older_seq_changes_nothing_and_is_counted(seq: int) -> None:
    """A duplicate and a record that arrives late are stale: they change no sum, make no dead letter and are counted."""
    topic = Topic().snapshot(counter(7), seq=2).snapshot(counter(5), seq=seq)
    assert topic.changes._replace(rows=[]) == Published([], [], [], [], [], [])
    assert topic.table.state.stale == 1


def test_no_record_is_superseded_after_a_refused_one() -> None:
    """Each of them is refused, and a dead letter of its own."""
    table, limits = Table(State(), TableSettings()), []
    for offset, value in enumerate((MAX_COUNT, 0, 1, 1)):
        text = b'{"name":"n","value":%d}' % value
        limits.append(table.apply_record(Record("metrics", 0, offset, BEGIN_MS, b"app-1", text, BEGIN_MS)))
    assert [limit < 0 for limit in limits] == [False, False, True, True]
    assert len(table.outputs().dead) == 2


def test_rule_2_the_counts_of_a_new_life_are_added() -> None:
    """The counts of a new life of an instance are added to those of the old one, and a restart is an event."""
    topic = Topic().snapshot(counter(10)).snapshot(counter(1), life=SECOND)
    assert topic.sum().count == 11
    assert [(event.kind, event.instance, event.life) for event in topic.changes.events] == [
        ("restart", "app-1", SECOND)
    ]


def test_rule_2_several_living_lives_of_one_instance_are_all_counted() -> None:
    """Workers that share an instance ID are several lives of one instance."""
    row = Topic().snapshot(counter(10)).snapshot(counter(1), life=SECOND).sum()
    assert (row.lives, row.instances) == (2, 1)


def test_rule_3_a_record_too_long_after_its_prev_is_a_dead_letter() -> None:
    """Only its own append time decides, not the partition's clock."""
    topic = Topic().snapshot(counter(10)).snapshot(counter(11), seq=2, prev=BEGIN_MS, at=DAY_MS - 1)
    assert topic.sum().count == 11
    topic.snapshot(counter(12), seq=3, prev=BEGIN_MS, at=DAY_MS)
    assert topic.reasons() == [f"too late: appended {DAY_MS} ms after prev; the limit is {DAY_MS} ms"]
    topic.append(b"clock", b'{"name":"tick","value":1}', at=3 * DAY_MS)
    assert topic.snapshot(counter(13), seq=4, prev=BEGIN_MS, at=DAY_MS - 1).sum().count == 13


def test_rule_3_a_life_of_a_clock_that_is_too_far_ahead_is_refused_until_its_time_is_near() -> None:
    """This holds with and without `prev`. Otherwise a later copy of its first record would look like a new record."""
    ahead = new_ulid(BEGIN_MS + 3 * DAY_MS)
    topic = Topic().snapshot(counter(10), life=ahead).snapshot(counter(11), life=ahead, seq=2, prev=BEGIN_MS)
    reason = "too early: the life's ULID is {} ms ahead of the broker; the limit is {} ms"
    assert topic.reasons()[-1] == reason.format(3 * DAY_MS, DAY_MS)
    assert topic.table.state.lives == {}
    topic.snapshot(counter(10), life=ahead, at=2 * DAY_MS)
    assert topic.sum().count == 10


def test_rule_4_a_count_that_falls_within_a_life_is_refused_and_its_neighbours_are_not() -> None:
    """The row keeps its last value, and the metric is a dead letter."""
    topic = Topic().snapshot(counter(5), counter(5, "m")).snapshot(counter(4), counter(6, "m"), seq=2)
    assert topic.sum("m").count == 6
    assert topic.sum().count == 5
    assert topic.reasons() == ["the count fell within a life, from 5 to 4"]
    assert json.loads(topic.changes.dead[0].value())["metric"] == '{"type":"counter","count":4,"name":"n"}'


def test_rule_4_a_sum_beyond_64_bits_is_the_largest_number_until_it_fits_again() -> None:
    """It is published with `overflow`, without an event. The exact sum is kept and published again."""
    topic = Topic().snapshot(counter(2**63 - 1)).snapshot(counter(1), key=b"app-2", life=SECOND)
    assert topic.sum().count == 2**63 - 1
    assert (topic.sum().overflow, topic.kinds()) == (True, [])
    topic.snapshot(counter(2), key=b"app-2", life=SECOND, seq=2)
    assert (topic.sum().count, topic.sum().overflow, topic.kinds()) == (2**63 - 1, True, [])
    topic.append(b"app-1", None)
    assert (topic.sum().count, topic.sum().overflow) == (2, False)


def test_rule_5_gauges_are_summed_over_living_lives_and_silence_touches_no_counter() -> None:
    """A life without a record for three intervals is silent: its gauge leaves the sum, its count stays."""
    topic = Topic().snapshot(gauge(3), counter(3)).snapshot(gauge(4), counter(4), key=b"app-2", life=SECOND, at=2000)
    row = topic.sum("g")
    assert (row.sum, row.min, row.max, row.mean, row.number) == (7, 3, 4, 3.5, 2)
    topic.snapshot(gauge(4), counter(4), key=b"app-2", life=SECOND, seq=2, at=3000)
    assert (topic.sum("g").sum, topic.sum("g").number) == (4, 1)
    assert (topic.sum().count, topic.sum().lives) == (7, 1)


def test_rule_5_a_clock_record_ends_a_life_though_no_instance_publishes() -> None:
    """The sum has the time of the clock record."""
    topic = Topic().snapshot(gauge(3)).append(CLOCK_KEY, clock_value(0), at=3000)
    assert (topic.sum("g").number, topic.sum("g").sum, topic.sum("g").ts) == (0, None, BEGIN_MS + 3000)


def test_rule_5_a_final_record_ends_a_life_at_once() -> None:
    """After a final record a life is no longer living, and its counts stay."""
    topic = Topic().snapshot(gauge(3), counter(3)).snapshot(gauge(3), counter(4), seq=2, final=True)
    assert (topic.sum("g").number, topic.sum().count, topic.sum().lives) == (0, 4, 0)


def test_rule_6_a_meters_count_stays_and_its_rates_are_those_of_living_lives() -> None:
    """The rates of a silent life leave the sum."""
    meter = {"type": "meter", "name": "m", "count": 5, "m1_rate": 0.5, "mean_rate": 1}
    topic = Topic().snapshot(meter).snapshot(meter, key=b"app-2", life=SECOND)
    assert (topic.sum("m").count, topic.sum("m").m1_rate, topic.sum("m").mean_rate) == (10, 1.0, 2)
    topic.append(b"clock", b'{"name":"tick","value":1}', at=3000)
    assert (topic.sum("m").count, topic.sum("m").m1_rate) == (10, None)


def test_rule_8_one_bad_metric_is_refused_and_the_others_count() -> None:
    """A NaN gauge is a dead letter, and the counter of the same snapshot counts."""
    topic = Topic().snapshot(gauge(float("nan")), counter(5))
    assert topic.sum().count == 5
    assert topic.reasons() == ["nan is not a number that can be summed"]


def test_rule_8_an_unreadable_record_is_a_dead_letter_with_its_offset_and_the_next_one_counts() -> None:
    """The dead letter has the record's key, offset, time and bytes, and the reason."""
    topic = Topic().append(b"app-1", b"\xff{")
    (letter,) = topic.changes.dead
    body = json.loads(letter.value())
    assert letter.key() == b"app-1"
    assert (body["topic"], body["partition"], body["offset"], body["ts"]) == ("metrics", 0, 0, BEGIN_MS)
    assert (body["bytes"], body["value_base64"]) == (2, "/3s=")
    assert "UTF-8" in body["reason"]
    assert topic.snapshot(counter(1)).sum().count == 1


def test_rule_9_a_missing_counter_keeps_its_row_and_a_missing_gauge_goes_silent() -> None:
    """A count that a newer snapshot lacks stays in the sum, but the metric is no longer current."""
    topic = Topic().snapshot(gauge(3), counter(3)).snapshot(seq=2)
    assert topic.sum("g").number == 0
    assert (topic.sum().count, topic.sum().lives) == (3, 0)


def test_rule_9_positions_keep_the_highest_of_all_lives() -> None:
    """A consumer that starts again at an older offset does not lower the position. `start` keeps the lowest one."""
    position = {"type": "position", "name": "p", "start": 100, "position": 200}
    topic = Topic().snapshot(position).snapshot(position | {"start": 150, "position": 180}, life=SECOND)
    assert (topic.sum("p").start, topic.sum("p").position) == (100, 200)


def test_rule_10_a_tombstone_removes_the_instance_and_a_later_record_counts_in_full() -> None:
    """All lives of the instance lose their rows. A stale record does not restore them, a newer one counts in full."""
    topic = Topic().snapshot(counter(10)).snapshot(counter(1), life=SECOND).append(b"app-1", None)
    assert (topic.sum().count, topic.kinds()) == (0, ["tombstone", "tombstone"])
    assert topic.snapshot(counter(10)).changes.totals == []
    assert topic.snapshot(counter(12), seq=2).sum().count == 12


def test_rule_10_a_tombstone_removes_the_rows_of_silent_lives_and_keeps_their_markers() -> None:
    """A silent life loses its rows, too. A stale record does not restore them, a newer one counts in full."""
    topic = Topic().snapshot(counter(10), seq=5).append(b"clock", b'{"name":"tick","value":1}', at=2 * DAY_MS)
    assert topic.append(b"app-1", None, at=2 * DAY_MS).sum().count == 0
    assert topic.snapshot(counter(9), seq=4, prev=BEGIN_MS, at=DAY_MS - 1).changes.totals == []
    assert topic.snapshot(counter(12), seq=6, prev=BEGIN_MS, at=DAY_MS - 1).sum().count == 12


def test_rule_11_a_record_beyond_the_size_limit_is_a_dead_letter_and_an_event() -> None:
    """The record is not parsed, and the instance's next one counts."""
    topic = Topic(TableSettings(max_record_bytes=300)).snapshot(counter(1, "n" * 300))
    assert topic.reasons()[0].endswith("the limit is 300")
    assert [(event.kind, event.detail) for event in topic.changes.events] == [("limit", "record size")]
    assert topic.snapshot(counter(1)).sum().count == 1


def test_rule_11_metrics_beyond_the_limit_of_a_record_are_refused_and_the_rest_counts() -> None:
    """There is one dead letter for each record and one event for each life, however many metrics are refused."""
    topic = Topic(TableSettings(max_metrics=2)).snapshot(*(counter(1, f"n{i}") for i in range(5)))
    assert [total.metric[1] for total in topic.changes.totals] == ["n0", "n1"]
    assert topic.reasons() == ["limit: 3 metrics beyond the 2 that a record may have"]
    assert [(event.kind, event.detail) for event in topic.changes.events] == [("limit", "metrics per record")]
    assert topic.snapshot(*(counter(1, f"n{i}") for i in range(5)), seq=2).kinds() == []


def test_rule_11_metrics_over_the_limit_of_a_life_are_refused_and_use_no_quota() -> None:
    """A life with other names in every record grows up to the limit, and so does the table's list of metric names."""
    topic = Topic(TableSettings(max_metrics=2))
    for seq in range(1, 6):
        topic.snapshot(counter(seq, f"n{seq}"), seq=seq)
    assert topic.reasons() == ["limit: 1 metrics beyond the 2 that a life may have"]
    assert len(topic.table.state.metrics) == 2


def test_rule_11_names_and_tags_of_a_life_have_a_limit_in_bytes() -> None:
    """It is 256 bytes for each metric that a life may have, over all of its parts. Removed metrics leave room."""
    topic = Topic(TableSettings(max_metrics=4)).snapshot(counter(1, "a" * 500), counter(1, "b" * 500))
    topic.snapshot(counter(1, "c" * 24), counter(1, "d" * 5), part=1)
    assert topic.reasons() == ["limit: 1 metrics beyond the 1024 bytes that the names and tags of a life may have"]
    assert [event.detail for event in topic.changes.events] == ["bytes of metrics per life"]
    topic.table = Table(unpack(pack(topic.table.state)), TableSettings(max_metrics=4))
    topic.snapshot(counter(1, "d" * 5), part=1, seq=2)
    assert len(topic.changes.dead) == 1
    topic.append(b"other", b'{"forget":{"metric":"%s"}}' % (b"a" * 500))
    assert topic.snapshot(counter(1, "d" * 5), part=1, seq=3).sum("d" * 5).count == 1


def test_the_short_form_keeps_what_was_counted_before_a_restart() -> None:
    """A value that is lower than the one before is a restart: 5, 7, 2 add up to 7 + 2."""
    topic = Topic().short(5).short(7).short(2)
    assert (topic.sum().app, topic.sum().count, topic.kinds()) == ("default", 9, ["restart"])


def test_the_short_form_falls_silent_after_three_minutes() -> None:
    """Its interval is unknown, and taken to be a minute."""
    topic = Topic().short(5)
    for at, lives in ((179_999, 1), (180_000, 0)):
        topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at)
        topic.table.publish_all()
        assert publish(topic.table).totals[0].lives == lives


def test_the_dead_letters_of_a_record_quote_8_kib_in_all() -> None:
    """Of the metrics as well as of the record. Its place tells the rest."""
    bad = [{"type": "counter", "name": "n" * 3_000, "count": 1}] * 4
    topic = Topic().snapshot(*bad)
    assert len(topic.changes.dead) == 4
    assert sum(len(letter.metric or "") for letter in topic.changes.dead) == 8_192
    topic.append(b"app-1", b"[" * 10_000)
    assert [len(letter.record.value or b"") for letter in topic.changes.dead] == [8_192]


def test_texts_of_dead_letters_are_cut_between_characters() -> None:
    """A character takes up to four bytes. A text that is cut stays a text, and what is none is quoted as bytes."""
    text = "\N{GRINNING FACE}" * 3_000
    for shift in range(4):
        for value in ("x" * shift + text, "\ud7ff" * shift + text):
            (letter,) = Topic().append(b"app-1", value.encode()).changes.dead
            quoted = json.loads(letter.value())["value"]
            assert value.startswith(quoted)
            assert 8_188 < len(quoted.encode()) <= 8_192
    metric = counter(1, "n") | {"tags": {f"{n}": text[:512] for n in range(9)}}
    (letter,) = Topic().snapshot(metric, metric).changes.dead
    assert 8_188 < len((letter.metric or "").encode()) <= 8_192
    (letter,) = Topic().append(b"app-1", b"\x80" * 10_000).changes.dead
    assert len(letter.record.value or b"") >= 8_188


@pytest.mark.parametrize("spare", [-1, 0])
def test_a_record_may_be_as_large_as_the_limit(spare: int) -> None:
    """In every form. A byte more is refused."""
    values = [b'{"name":"n","value":1}', b'{"v":1,"forget":{}}', b'{"resourceMetrics":[]}']
    for topic, value in zip(("metrics", "metrics", "otlp"), values, strict=True):
        table = Table(State(), TableSettings(max_record_bytes=len(value) + spare, otlp_topics=("otlp",)))
        letters = run(table, [Record(topic, 0, 0, BEGIN_MS, b"app-1", value)]).dead
        assert [letter.reason.startswith("limit: the record has") for letter in letters] == [True] * -spare


def test_every_truncation_of_a_state_is_refused() -> None:
    """A truncated state is never read as a smaller one."""
    packed = pack(Topic().snapshot(counter(1), gauge(2)).table.state)
    for length in range(len(packed)):
        with pytest.raises(StateError):
            unpack(packed[:length])


def test_a_state_of_version_1_is_stored_as_that_of_this_version() -> None:
    """An older aggregator would lose what it does not know, so it has to refuse what a later one stores."""
    assert unpack(pack(State(version=1))).version == STATE_VERSION


def test_a_state_of_another_version_is_refused_with_the_remedy() -> None:
    """The error names both versions."""
    state = State(version=7)
    with pytest.raises(StateError, match="another version wrote it"):
        unpack(pack(state))
