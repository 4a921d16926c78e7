"""What a table of so many rows costs while its instances report: python -m benchmarks.scaling.

Each stage is a fleet of instances with 100 counters, which report snapshots every ten seconds, to a broker and an
aggregator of its own: the cores and the memory that it takes, what is stored, and how long a restart takes. Every sum
is checked: exit code 1 when one was wrong. Then what that says of larger fleets, by calculation.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.aggregator.sides import SideError
from benchmarks.aggregator.topic import LoadError
from benchmarks.scaling.reporting import Stage, measure
from benchmarks.scaling.sizing import costs, tables
from tallystream.compose.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scaling.reporting import Found

WORK = Path(__file__).parents[2] / ".build" / "bench-scaling"
STAGES = (Stage(100, 1), Stage(1_000, 1), Stage(10_000, 1), Stage(10_000, 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the stages and print the tables; the exit code is 1 where a sum was wrong or a stage did not end."""
    parser = argparse.ArgumentParser(prog="benchmarks.scaling", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each stage reports, after as long before")
    parser.add_argument("--scale", type=float, default=1.0, help="a factor to the instances, for a try")
    options = parser.parse_args(arguments)
    found: list[Found] = []
    for stage in STAGES:
        scaled = stage._replace(instances=max(10, int(stage.instances * options.scale)))
        print(f"bench: {scaled.instances:,} instances, {scaled.shards} shards", file=sys.stderr, flush=True)
        shutil.rmtree(WORK, ignore_errors=True)
        try:
            with KafkaBroker(WORK / "broker") as broker:
                found.append(measure(broker.bootstrap_servers, scaled, WORK / "side", seconds=options.seconds))
        except (SideError, LoadError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            shutil.rmtree(WORK, ignore_errors=True)
    print(tables(found, costs(found)))
    return 0 if all(one.exact for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
