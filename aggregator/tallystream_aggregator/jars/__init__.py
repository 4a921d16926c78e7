"""The jars of the list `jars.lock`: those of Spark's Kafka connector, of local files, and of a local broker.

`fetch("spark")` returns the paths of a set's jars. It downloads missing jars with the Ivy inside PySpark, so no build
tool is needed. Each call compares every jar with its SHA-256 in the list.
"""

from __future__ import annotations

from tallystream_aggregator.jars.ivy import Jar, JarsError, cache_dir, fetch, read_lock, sha256_of
from tallystream_aggregator.jars.java import java, java_version

__all__ = ["Jar", "JarsError", "cache_dir", "fetch", "java", "java_version", "read_lock", "sha256_of"]
