"""Sums that lack tags are those of the oracle on random schedules: rule 12, in every way in which the table runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from support import oracle
from support.batches import divide
from support.fuzz import examples
from support.runs import UNLIMITED, check_live, move, new_tables, on_one_clock, require_equal, sum_tags, wake_all
from support.schedules import batch_sizes, schedules, short_schedules
from support.tagged_schedules import TAGS, play_tagged

if TYPE_CHECKING:
    import random

    from support.tables import Tables

RULES = {"short_form_every_ms": 5_000, "max_metrics": 25}
chances = st.randoms(use_true_random=False)
few_or_many = st.one_of(short_schedules, short_schedules, schedules)
tags = st.sampled_from(TAGS)


@examples(60)
@given(few_or_many, batch_sizes | st.just([1_000]), tags)
def test_sums_without_tags_equal_the_oracle_and_the_replay_in_any_batches(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]]
) -> None:
    """An instance counts once in a sum, however many metrics it has there. Dead letters and events are the same."""
    records = play_tagged(schedule)
    check_live(records, divide(records, sizes), RULES, without)


@examples(20)
@given(few_or_many, batch_sizes, tags, chances)
def test_sums_without_tags_equal_the_oracle_while_instances_move(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """Each instance is in several partitions, whose records are read in any order."""
    records = move(play_tagged(schedule), chance)
    check_live(records, divide(records, sizes, chance), RULES, without)


@examples(50)
@given(few_or_many, batch_sizes, st.integers(1, 4), st.booleans(), chances)
def test_a_rebuilt_table_with_other_tags_equals_the_oracle(
    schedule: list[int], sizes: list[int], shards: int, splits: bool, chance: random.Random
) -> None:
    """The table crashes, is rebuilt with the same or other tags, and is split. No earlier sum remains as it was."""
    records = on_one_clock(play_tagged(schedule, 0 if splits else shards))
    known = [{}, *TAGS]
    without = chance.choice(TAGS)
    tables, rebuilds = new_tables(records, UNLIMITED, shards, chance, sum_tags=sum_tags(without)), 0
    for batch in divide(records, sizes):
        while tables.has_read and rebuilds < 3 and chance.random() < 0.3:
            rebuilds += 1
            if chance.random() < 0.6:
                tables.batch(batch, written=chance)
            more, behind = chance.choice([0, 1, 2]) if splits else 0, chance.random() < 0.2
            tables.rebuild(more, behind=behind, sum_tags=chance.choice([None, None, *map(sum_tags, known)]))
            # Rows that a crashed batch has written, or not, tell the next rebuild which tags the table had.
            (without,) = (one for one in known if sum_tags(one) == tables.states[0].sum_tags)
        tables.batch(batch)
    wanted = oracle.replay([*records, *wake_all(tables, records)], **UNLIMITED, **without)  # type: ignore[arg-type]
    require_no_earlier_sum(tables, wanted)
    require_equal(tables, wanted)


def require_no_earlier_sum(tables: Tables, wanted: oracle.Outcome) -> None:
    """Require that every sum that was ever published is one of `wanted`, or was published again as empty."""
    assert tables.summed <= tables.sums.keys()
    for metric in tables.sums.keys() - wanted.sums.keys():
        assert not any(tables.sums.pop(metric).values()), metric
