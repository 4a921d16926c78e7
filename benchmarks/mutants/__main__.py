"""Make errors in a package, one at a time: python -m benchmarks.mutants [--package NAME] [--sample N] [--seed N].

It prints each mutant that survives, which means that no test has failed, each that is killed because a test took too
long, which a busy machine could feign, and for each package how many were killed.
docs/testing.md says how to read that.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

from benchmarks.mutants.errors import mutants_of
from benchmarks.mutants.runs import BUILD, ROOT, judge, note_tests

PACKAGES = {
    "table": (
        ["aggregator/tallystream_aggregator/table/**/*.py"],
        [
            "tests/unit/aggregator/table",
            "tests/unit/aggregator/otlp",
            "tests/unit/aggregator/verify/test_verify_properties.py",
        ],
    ),
    "stream": (
        ["aggregator/tallystream_aggregator/stream/**/*.py"],
        [
            "tests/unit/aggregator/stream/test_[!l]*.py",
            "tests/unit/aggregator/stream/test_loop.py",
            "tests/unit/aggregator/stream/test_loop_[!s]*.py",
            "tests/unit/aggregator/stream/test_loop_settings.py",
        ],
    ),
    "reporter": (
        ["reporter/tallystream/kafka/life.py", "reporter/tallystream/kafka/parts.py"],
        [
            "tests/unit/reporter/test_lives.py",
            "tests/unit/reporter/test_parts.py",
            "tests/unit/reporter/test_kafka_*.py",
            "tests/unit/reporter/test_interrupted.py",
            "tests/unit/reporter/test_default_registry.py",
            "tests/unit/reporter/test_schedule.py",
        ],
    ),
    "lag": (
        [
            "dashboards/tallystream_dashboards/lag/[cost]*.py",
            "dashboards/tallystream_dashboards/lag/collector/answers.py",
            "dashboards/tallystream_dashboards/lag/collector/tracker.py",
        ],
        ["tests/unit/dashboards/test_lag_*.py"],
    ),
    "verify": (
        ["aggregator/tallystream_aggregator/verify/*.py"],
        [
            "tests/unit/aggregator/verify",
            "tests/unit/aggregator/otlp",
            "tests/unit/aggregator/table/test_*properties.py",
        ],
    ),
}
"""The source of each package, and its tests."""

GOAL = 90
"""So many percent of a package's mutants have to be killed."""


def main() -> int:
    """Print the survivors and the scores. Return 1 if a score is below the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="one of them; may be repeated")
    parser.add_argument("--sample", type=int, default=100, help="so many mutants of each package; 0: all; default 100")
    parser.add_argument("--seed", type=int, default=1, help="decides which mutants a sample has; default 1")
    parser.add_argument("--match", default="", help="of the sample, only mutants that are printed with this text")
    parser.add_argument("--jobs", type=int, default=2, help="so many run at once; default 2")
    parser.add_argument("--pause", type=Path, default=BUILD / "pause", help="no mutant starts while this file exists")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs is ended, too
    os.chdir(ROOT)
    BUILD.mkdir(parents=True, exist_ok=True)
    sys.pycache_prefix, sys.dont_write_bytecode = str(BUILD / "bytecode"), False
    scores = [_score(package, arguments) for package in arguments.package or PACKAGES]
    return int(min(scores) < GOAL)


def _score(package: str, arguments: argparse.Namespace) -> float:
    """Run the mutants of a package, and return how many percent were killed."""
    sources, tests = (
        [path for pattern in patterns for path in sorted(ROOT.glob(pattern))] for patterns in PACKAGES[package]
    )
    mutants = [mutant for file in sources for mutant in mutants_of(file, ROOT)]
    if arguments.sample:
        mutants = random.Random(arguments.seed).sample(mutants, min(arguments.sample, len(mutants)))
    chosen = [mutant for mutant in mutants if arguments.match in str(mutant)]
    begin = time.monotonic()
    noted = note_tests(package, tests, sources)
    print(f"{package}: {len(chosen)} mutants, {len(noted)} tests in {time.monotonic() - begin:.0f} s", flush=True)
    survivors = 0
    for number, (mutant, verdict) in enumerate(judge(chosen, noted, arguments.jobs, arguments.pause), 1):
        survivors += verdict == "survived"
        if verdict != "killed":
            print(f"  {verdict}: {mutant}", flush=True)
        if number % 20 == 0:
            print(f"  {number} of {len(chosen)}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    score = 100 * (len(chosen) - survivors) / max(1, len(chosen))
    print(f"{package}: {score:.1f} % of {len(chosen)} killed, {survivors} survived", flush=True)
    return score


if __name__ == "__main__":
    sys.exit(main())
