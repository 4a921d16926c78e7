"""Imported by each Python that Spark starts, before all else: PySpark comes from where it is installed, with bytecode.

Spark puts zips of PySpark's and Py4J's sources first in their path, which each process compiles again, in 0.3 s.
Only tallystream_aggregator.spark.session has Python find this module, by its folder in PYTHONPATH.
"""

import importlib
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)
_ZIPS = ("/python/lib/pyspark.zip", "-src.zip")

sys.path[:] = [path for path in sys.path if path != _HERE and not path.endswith(_ZIPS)]

# This environment's own, which this one stands before.
_ours = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ModuleNotFoundError as _error:
    if _error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _ours  # who imports a module expects to find it
