"""`tallystream aggregate` with a `--forget-after-days` below five. Without `--spark`, its loops run without Spark.

    python -m support.soak.aggregate [--spark] aggregate …

The table has every life of the last days, so in a run of hours it only grows. A life of the soak never comes back
after its end, so that nothing counts twice if it is forgotten within minutes.
"""

from __future__ import annotations

import sys
from typing import Any

from support.without_spark import replace_spark
from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings
from tallystream_cli import main

if __name__ == "__main__":
    without_limits: Any = AggregateSettings
    without_limits.__post_init__ = lambda _: None
    if "--spark" in sys.argv:
        sys.argv.remove("--spark")
    else:
        replace_spark()
    sys.argv[0] = "tallystream"
    main.main()
