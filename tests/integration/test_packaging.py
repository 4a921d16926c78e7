"""The distribution `tallystream`: built, installed alone in an empty environment, and imported there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from support.commands import uv
from support.wheels import build

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def build_one(kind: str, source: Path, folder: Path) -> Path:
    """Build a wheel or sdist of the reporter, and return the file."""
    build(kind, source, folder)
    (built,) = [path for path in folder.iterdir() if path.name.startswith("tallystream-")]
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    """Return every file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_one("wheel", ROOT / "reporter", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_all_files_of_the_reporter_and_no_others(wheel: Path) -> None:
    """It has all modules of the reporter, py.typed and the licence, and no file of another distribution."""
    files = contents(wheel)
    source = ROOT / "reporter"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")} | {"tallystream/py.typed"}
    assert {name for name in files if ".dist-info/" not in name} == modules
    (licence,) = [content for name, content in files.items() if name.endswith("/licenses/LICENSE")]
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_the_metadata_is_complete(wheel: Path) -> None:
    """Name, version, licence, README, Python versions, classifiers, and two dependencies."""
    (text,) = [content for name, content in contents(wheel).items() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(text.decode())
    assert (metadata["Name"], metadata["Version"]) == ("tallystream", "0.1.0")
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "reporter" / "README.md").read_text().strip()
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra" not in line]
    assert [line.partition(">")[0] for line in required] == ["confluent-kafka", "msgspec"]


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """The wheel made from the sdist alone equals the one made from the repository, file by file."""
    sdist = build_one("sdist", ROOT / "reporter", tmp_path / "sdist")
    assert contents(build_one("wheel", sdist, tmp_path / "wheel")) == contents(wheel)


def test_it_installs_alone(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment it has two dependencies, and counts without a warning."""
    uv("venv", "-q", "--python", sys.executable, tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    uv("pip", "install", "-q", "--python", python, "-c", ROOT / "requirements.lock", wheel)
    installed = json.loads(uv("pip", "list", "--python", python, "--format", "json"))
    assert {package["name"] for package in installed} == {"confluent-kafka", "msgspec", "tallystream"}
    program = """
import pathlib, tallystream, tallystream.testing as testing
assert pathlib.Path(tallystream.__file__).with_name("py.typed").exists()
registry = tallystream.MetricRegistry("orders")
registry.counter("c").inc(3)
testing.assert_count(registry, "c", 3)
try:
    tallystream.report("orders", bootstrap_servers="127.0.0.1:1").reporter.stop(timeout=0)
    import tallystream_aggregator
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert (done.returncode, done.stdout) == (0, "No module named 'tallystream_aggregator'\n"), done.stderr
