"""Runs figures: each side of each figure gets a broker of its own with nothing else on it.

Sides take turns, rounds reverse them. Every sum is checked: exit code 1 when one was wrong, or when a side did not
finish.
"""

from __future__ import annotations

import argparse
import math
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from benchmarks.aggregator import report
from benchmarks.aggregator.goals import OURS as OUR_NAME
from benchmarks.aggregator.kstreams_build import BuildError
from benchmarks.aggregator.results import Result, Results
from benchmarks.aggregator.sides import ALL, LINGER_0, OURS, PEER, PEER_LINGER_0, KafkaStreams, Ours, Side, SideError
from benchmarks.aggregator.topic import LoadError
from benchmarks.speed import work_ms
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.aggregator.goals import Found

ROOT = Path(__file__).parents[2]


class Figure(Protocol):
    """What is measured, and the sides that take part."""

    @property
    def name(self) -> str:
        """What `--only` calls it."""

    @property
    def sides(self) -> tuple[str, ...]:
        """As `--sides` names them."""

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure one side; `scale` makes it smaller."""


class Benchmark(NamedTuple):
    """A command that measures `figures`; `tables` are their text, which a run of all at full size puts into `page`."""

    command: str
    description: str
    figures: Sequence[Figure]
    tables: Callable[[Found], str]
    build: Path
    page: Path


def run(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for, print the tables, and put them into the page where the run was a whole one."""
    options = _options(benchmark, arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # either ends what was started, in order
    results = Results(options.results, resume=options.resume)
    try:
        failures = _measure(benchmark, options, results)
    except KeyboardInterrupt:
        _say("interrupted: what is running has been ended; --resume measures the rest")
        return 130
    except BuildError as error:
        _say(str(error))
        return 2
    found = results.medians()
    command = f"{benchmark.command} {shlex.join(options.given)}".rstrip()
    text = report.machine(command, options.scale, options.rounds, found) + "\n" + benchmark.tables(found)
    print(text)
    whole = options.scale == 1 and not options.only and options.sides == list(ALL) and not options.option
    out = options.out or (benchmark.page if whole and not failures else None)
    if out is not None:
        out.write_text(report.into(out.read_text(encoding="utf-8"), text), encoding="utf-8")
    for failure in failures:
        _say(failure)
    return 1 if failures else 0


def _measure(benchmark: Benchmark, options: argparse.Namespace, results: Results) -> list[str]:
    failures = []
    for figure in benchmark.figures:
        if options.only and figure.name not in options.only:
            continue
        for number in range(1, options.rounds + 1):
            taking_part = [side for side in figure.sides if side in options.sides]
            for key in taking_part if number % 2 else reversed(taking_part):
                side = _side(key, tuple(options.option))
                if results.has(figure.name, side.name, number):
                    continue
                _say(f"{figure.name}, {side.name}, round {number}")
                work = benchmark.build / "work"
                shutil.rmtree(work, ignore_errors=True)
                speed_ms = work_ms()
                try:
                    with KafkaBroker(work / "broker") as broker:
                        servers, folder = broker.bootstrap_servers, work / "side"
                        found = figure.measure(servers, side, folder, options.scale)
                except (SideError, LoadError) as error:
                    failures.append(f"{figure.name}, {side.name}: {error}")
                    _say(failures[-1])
                    continue
                finally:
                    _keep_log(benchmark.build, f"{figure.name}-{key}.log")
                results.add(Result(figure.name, side.name, number, {**found, "work_ms": speed_ms}))
                _say(_line(found))
                if not found["exact"]:
                    failures.append(f"{figure.name}, {side.name}: the sums are wrong")
    return failures


def _side(key: str, options: tuple[str, ...]) -> Side:
    if key == OURS:
        return Ours(options=options, name=OUR_NAME)
    return KafkaStreams() if key == PEER else KafkaStreams(mode="lowlat-linger0", name=LINGER_0)


def _keep_log(build: Path, name: str) -> None:
    log = build / "work" / "side" / "log"
    if log.exists():
        (build / "logs").mkdir(parents=True, exist_ok=True)
        shutil.copy(log, build / "logs" / name)
    shutil.rmtree(build / "work", ignore_errors=True)


def _line(found: dict[str, object]) -> str:
    shown = {key: value for key, value in found.items() if not isinstance(value, dict)}
    numbers = {key: round(value, 3) if isinstance(value, float) else value for key, value in shown.items()}
    return "  " + ", ".join(f"{key} {value}" for key, value in numbers.items())


def _options(benchmark: Benchmark, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=benchmark.command, description=benchmark.description)
    names = [figure.name for figure in benchmark.figures]
    sides = f"{OURS}, {PEER} (exactly_once_v2), {PEER_LINGER_0} (at_least_once, linger 0); all if not given"
    parser.add_argument("--only", type=_listed(names), default=[], help=f"figures: {', '.join(names)}")
    parser.add_argument("--sides", type=_listed(ALL), default=list(ALL), help=sides)
    parser.add_argument("--scale", type=_positive, default=1.0, help="a factor to the updates, seconds and rows")
    parser.add_argument(
        "--rounds", "--repeat", type=int, default=1, help="how often each side has its turn; medians are shown"
    )
    parser.add_argument("--resume", action="store_true", help="keep what the file of results has, measure the rest")
    parser.add_argument("--option", action="append", default=[], help="a further option for tallystream aggregate")
    parser.add_argument("--results", type=Path, default=benchmark.build / "results.jsonl", help="the file of results")
    parser.add_argument("--out", type=Path, help="a page to write into")
    options = parser.parse_args(arguments)
    options.given = list(sys.argv[1:] if arguments is None else arguments)
    return options


def _listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        asked = text.split(",")
        wrong = [name for name in asked if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: there are {', '.join(known)}")
        return asked

    return parse


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a number above zero")
    return value


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
