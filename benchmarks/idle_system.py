"""What a running `tallystream up` takes: `python -m benchmarks.idle_system [DATA]`, with the folder of its data.

Memory is the sum of the proportional set sizes of all processes at the end of two minutes: shared pages count once.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.aggregator.usage import Usage, usage

SECONDS = 120


def main(data: Path) -> None:
    """Print the memory and the processor time of each component and of all."""
    system = json.loads((data / "system.json").read_bytes())
    pids = {one["name"]: one["pid"] for one in system["components"]} | {"all": system["supervisor"]}
    before = _usages(pids)
    time.sleep(SECONDS)
    after = _usages(pids)
    print(f"{'':9}      MB  cores")
    for name, now in after.items():
        cores = (now.cpu_s - before[name].cpu_s) / SECONDS
        print(f"{name:9}  {now.memory / 1e6:6,.0f}  {cores:5.3f}")


def _usages(pids: dict[str, int]) -> dict[str, Usage]:
    return {name: usage(pid) for name, pid in pids.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_system", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=Path(".tallystream"), help="the folder of its data")
    main(parser.parse_args().data)
