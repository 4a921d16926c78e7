"""Whatever bytes come from outside, a reader raises no error but those that it documents: `support.fuzzing`."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from support.fuzzing.__main__ import fuzz, keep
from support.fuzzing.mutations import MAX_BYTES, mutated
from support.fuzzing.targets import TARGETS, Target, corpus_of, finding

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_gives_an_error_that_is_not_documented(name: str) -> None:
    """The corpus, which has what was found before, and a few hundred changes of it, the same in each run."""
    target, corpus = TARGETS[name], corpus_of(name)
    changed = (mutated(random.Random(f"{name} {number}"), corpus) for number in range(target.inputs))
    for data in itertools.chain(corpus, changed):
        error = finding(target, data)
        assert error is None, (data, error)


@pytest.mark.parametrize("name", TARGETS)
def test_every_reader_accepts_an_input_of_its_corpus(name: str) -> None:
    """A target that refuses everything would find nothing."""
    target = TARGETS[name]
    for data in corpus_of(name):
        try:
            target.run(data)
        except target.raises:
            continue
        return
    pytest.fail("all inputs are refused")


def test_changed_inputs_are_short_and_the_same_for_a_seed() -> None:
    """So a finding can be repeated by its seed."""
    corpus = [b'a\t{"x":[1,2,{"y":"z"}]}\nb\t7', bytes(MAX_BYTES)]
    first, second = ([mutated(random.Random(f"{seed}"), corpus) for seed in range(500)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 200
    assert max(map(len, first)) <= MAX_BYTES


def planted(data: bytes) -> None:
    """Fail for some inputs."""
    if b"!" in data:
        raise KeyError("planted")
    int(data)


def test_a_planted_error_is_found_and_kept(tmp_path: Path) -> None:
    """The documented error is none. Of the findings at one place the first one is kept."""
    ticks = itertools.count()
    target = Target(planted, 0, (ValueError,))
    corpus = [b"12", b"!", b"another ! at the same place"]
    report = fuzz(
        "planted", target, corpus, seconds=20, seed=1, clock=lambda: float(next(ticks)) / 1_000, processor=lambda: 0.0
    )
    ((error, data),) = report.found.values()
    assert (type(error), data) == (KeyError, b"!")
    assert report.inputs > 5_000
    assert keep(tmp_path, data).read_bytes() == b"!"


def test_an_input_that_takes_long_is_reported_if_it_does_so_again() -> None:
    """Not one during which the machine was busy."""
    now, runs = 0.0, 0

    def slow(data: bytes) -> None:
        nonlocal now, runs
        runs += 1
        now += 5.0 if data == b"slow" or runs == 1 else 0.001

    report = fuzz("slow", Target(slow, 0), [b"busy", b"fast", b"slow"], seconds=0, seed=1, processor=lambda: now)
    assert report.slow == [(5.0, b"slow")]
    assert (report.inputs, report.found) == (3, {})
