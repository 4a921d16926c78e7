"""Make each Python process that Spark starts import the installed PySpark, which has bytecode.

Spark puts zips of PySpark's and Py4J's sources first in the path. Each process compiles them again, in 0.3 s. Python
imports this module at its start. Only tallystream_aggregator.spark.session adds its folder to PYTHONPATH.
"""

import importlib
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)
_ZIPS = ("/python/lib/pyspark.zip", "-src.zip")

sys.path[:] = [path for path in sys.path if path != _HERE and not path.endswith(_ZIPS)]

# Import the sitecustomize of this environment, which this one hides.
_ours = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ModuleNotFoundError as _error:
    if _error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _ours  # the import system expects an imported module here
