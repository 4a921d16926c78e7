"""Jars by an exact list: what Spark needs for Kafka, and what a local broker is made of.

`fetch("spark")` returns the paths of a set's jars and downloads what is missing with the Ivy inside PySpark, so that no
build tool is needed. At each use every jar is compared with its SHA-256 in `jars.lock`.
"""

from __future__ import annotations

from tallystream_aggregator.jars.ivy import Jar, JarsError, cache_dir, fetch, read_lock, sha256_of
from tallystream_aggregator.jars.java import java, java_version

__all__ = ["Jar", "JarsError", "cache_dir", "fetch", "java", "java_version", "read_lock", "sha256_of"]
