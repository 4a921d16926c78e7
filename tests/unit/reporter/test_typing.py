"""The public API for a type checker: mypy strict infers the documented types, and finds misuse."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RIGHT = """
import asyncio
import tallystream
from typing_extensions import reveal_type
from tallystream import ConsumerProgress, MetricRegistry, count_exceptions, counted, report, timed
from tallystream.testing import InMemoryReporter, ManualClock

registry = MetricRegistry("orders", clock=ManualClock())
counter = registry.counter("c", tags={"topic": "orders"})
reveal_type(counter.labels(topic="orders").count)  # int
gauge = registry.gauge("g", lambda: counter.count / 2)
reveal_type(gauge.value)  # float | None
reveal_type(registry.meter("m").rates().m1_rate)  # float
recent = registry.histogram("h").view()
assert recent is not None
reveal_type(recent.p99)  # float
with registry.child("http").timer("t").time() as timing:
    reveal_type(timing.elapsed)  # float | None
reveal_type(registry.position("orders", 0).position)  # int | None
reveal_type(ConsumerProgress(registry, "seen").processed([]))  # int
with InMemoryReporter(registry) as memory:
    reveal_type(memory)  # InMemoryReporter
reveal_type(report("orders").reporter.report_now())  # bool

@counted("calls")
@timed("time")
@count_exceptions("failed")
async def handle_all(number: int) -> str:
    return str(number)

reveal_type(asyncio.run(handle_all(3)))  # str

@registry.timer("t")
def handle(number: int) -> bytes:
    return bytes(number)

reveal_type(handle(3))  # bytes
reveal_type(tallystream.__version__)  # str
"""

WRONG = """
from tallystream import KafkaReporter
registry.counter("c").inc(1.5)  # arg-type
registry.counter("c").dec()  # attr-defined
registry.gauge("g", lambda: "text")  # arg-type, return-value
registry.counter("c", "orders")  # arg-type
registry.gauge("g", {"topic": "orders"})  # arg-type
tallystream.nothing  # attr-defined
KafkaReporter(registry)  # call-arg
handle("3")  # arg-type
"""


def check(folder: Path, program: str) -> list[str]:
    """Return the output of mypy strict for a program outside this project that uses the reporter."""
    file = folder / "program.py"
    file.write_text(program)
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-confluent_kafka.*]\nfollow_imports = skip\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(folder), "program.py"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("program.py:")]


def test_the_public_api_is_typed_and_its_misuse_found(tmp_path: Path) -> None:
    """Each expression has the type in its comment; each wrong line, and no other, has the error in its comment."""
    program = RIGHT + WRONG
    revealed: dict[int, str] = {}
    errors: dict[int, set[str]] = {}
    for line in check(tmp_path, program):
        _, number, rest = line.split(":", 2)
        if found := re.search(r'Revealed type is "(.*)"', rest):
            revealed[int(number)] = re.sub(r"\b(?:[a-z_0-9]+\.)+|\?", "", found[1])
        elif found := re.search(r"error:.*\[([a-z-]+)\]$", rest):
            errors.setdefault(int(number), set()).add(found[1])
    commented = {n: text for n, text in enumerate(program.splitlines(), start=1) if "  # " in text}
    assert revealed == {n: text.split("  # ")[1] for n, text in commented.items() if "reveal_type(" in text}
    named = {n: text.split("  # ")[1].split(", ") for n, text in commented.items() if "reveal_type(" not in text}
    assert errors.keys() == named.keys(), errors
    for number, kinds in named.items():
        assert errors[number] <= set(kinds)
