"""Sums that lack tags are those of the oracle on random schedules: rule 12, in every way in which the table runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from support import oracle
from support.divisions import divide
from support.fuzz import examples
from support.runs import UNLIMITED, check, move, new_tables, require_equal, sum_tags, take
from support.schedules import batch_sizes, schedules, short_schedules
from support.tagged_schedules import TAGS, play_tagged

if TYPE_CHECKING:
    import random

RULES = {"short_form_every_ms": 5_000, "max_metrics": 25}
chances = st.randoms(use_true_random=False)
few_or_many = st.one_of(short_schedules, short_schedules, schedules)
tags = st.sampled_from(TAGS)


@examples(60)
@given(few_or_many, batch_sizes | st.just([1_000]), tags)
def test_sums_without_tags_equal_the_oracle_and_the_replay_in_any_steps(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]]
) -> None:
    """An instance counts once in a sum, however many metrics it has there. Dead letters and events are the same."""
    records = play_tagged(schedule)
    check(records, divide(records, sizes), RULES, without)


@examples(20)
@given(few_or_many, batch_sizes, tags, chances)
def test_sums_without_tags_equal_the_oracle_while_instances_move(
    schedule: list[int], sizes: list[int], without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """Each instance is in several partitions, whose records are read in any order."""
    records = move(play_tagged(schedule), chance)
    check(records, divide(records, sizes, chance), RULES, without)


@examples(40)
@given(few_or_many, batch_sizes, st.integers(1, 4), tags, chances)
def test_a_table_without_tags_that_begins_again_equals_the_oracle(
    schedule: list[int], sizes: list[int], shards: int, without: dict[str, tuple[str, ...]], chance: random.Random
) -> None:
    """From its state or its rows, in several shards, whose sums are combined."""
    records = play_tagged(schedule, shards)
    tables = new_tables(records, UNLIMITED, shards, chance, sum_tags=sum_tags(without))
    take(divide(records, sizes), tables, chance, broken=0.3)
    require_equal(tables, oracle.replay(records, **UNLIMITED, **without))  # type: ignore[arg-type]
