"""Remove from PySpark what Tallystream does not use. Run it with the Python that has PySpark.

Spark looks for a class only when a job needs it, so a jar that no job needs can be removed. These stay: Spark Core,
Spark SQL with streaming and its state store, the file formats that Spark SQL registers at its start, and the scheduler
for Kubernetes. `make images` runs the jobs on what is left.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pyspark

UNUSED_JARS = {
    "Hive": "hive-[!s]* hive-serde* hive-service* hive-shims* spark-hive* datanucleus-* derby* *jdo-* HikariCP-*"
    " libfb303-* libthrift-* commons-dbcp-* commons-lang-2* commons-pool-1* javolution-* joda-time-* jpam-* json-1*"
    " jta-* opencsv-* oro-* ST4-* antlr-runtime-* stax-api-* super-csv-* transaction-api-*",
    "machine learning and graphs": "spark-mllib* spark-graphx* breeze* spire* cats-kernel* algebra* JTransforms-*"
    " JLargeArrays-* lapack-* arpack* blas-*",
    "Spark Connect, pipelines, DStreams and the shell": "spark-connect* connect-repl spark-pipelines*"
    " spark-streaming_* spark-repl* scala-compiler-* jline-*",
    "YARN, and a replicated standalone master": "spark-yarn* curator-* zookeeper-*",
}
"""What a group of jars is for → patterns of their names."""

LIBRARIES = {
    "x86_64": r"linux64\.so|linux/(amd64|x86_64)/|-linux-x86_64\.jar",
    "aarch64": r"linux-aarch64\.so|linux/aarch64/|-linux-aarch_64\.jar",
}
"""Processor → the names of native libraries for it, in jars or as jars."""


def main() -> None:
    """Remove jars, native libraries of other systems and processors, and examples. Print what is left."""
    folder = Path(pyspark.__file__).parent
    jars = folder / "jars"
    before = size(folder)
    unused = [pattern for patterns in UNUSED_JARS.values() for pattern in patterns.split()]
    for path in {path for pattern in unused for path in jars.glob(pattern)} | {folder / "examples", folder / "data"}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    native = re.compile(LIBRARIES[platform.machine()], re.IGNORECASE)
    for path in jars.glob("netty-t*.Final-*.jar"):
        if not native.search(path.name):
            path.unlink()
    for library in ("rocksdbjni", "zstd-jni", "snappy-java", "lz4-java"):
        (path,) = jars.glob(f"{library}-*.jar")
        keep_libraries(path, native)
    left = f"{size(folder) / 1e6:.0f} MB in {len(list(jars.iterdir()))} jars"
    sys.stdout.write(f"PySpark: {before / 1e6:.0f} MB, now {left}\n")


def keep_libraries(jar: Path, wanted: re.Pattern[str]) -> None:
    """Write a jar again with only those of its native libraries that are wanted.

    Raises:
        ValueError: none is.
    """
    new = jar.with_suffix(".new")
    kept = 0
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in old.infolist():
            native = entry.filename.endswith((".so", ".dll", ".dylib", ".jnilib", ".a"))
            if not native or wanted.search(entry.filename):
                written.writestr(entry, old.read(entry))
                kept += native
    if kept == 0:
        raise ValueError(f"{jar.name}: no native library matches {wanted.pattern}")
    new.replace(jar)


def size(folder: Path) -> int:
    """Return the size of all files below a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
