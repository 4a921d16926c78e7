"""The four distributions: built, checked, and installed by name in an empty environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from support.commands import uv
from support.wheels import download_dependencies

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "reporter": "tallystream",
    "aggregator": "tallystream_aggregator",
    "dashboards": "tallystream_dashboards",
    "compose": "tallystream_cli",
}
"""The folder of each distribution → its import package, which has the name of the distribution"""

distributions = pytest.mark.parametrize("folder", PACKAGES)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the sdist of each distribution as a packager does: the wheel is made from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    for source in PACKAGES:
        uv("build", "-q", "--no-build-isolation", "--python", sys.executable, ROOT / source, "-o", folder)
    return folder


def wheel_of(dist: Path, folder: str) -> dict[str, bytes]:
    """Return every file of the wheel of a distribution."""
    (wheel,) = dist.glob(f"{PACKAGES[folder]}-[0-9]*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel: dict[str, bytes]) -> Message:
    (text,) = [content for name, content in wheel.items() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(text.decode())


@distributions
def test_the_wheel_has_all_files_of_its_package_and_no_others(dist: Path, folder: str) -> None:
    """It has every file that the repository has of the package, py.typed and the licence, and no other file."""
    files = wheel_of(dist, folder)
    listed = subprocess.run(
        ["git", "ls-files", PACKAGES[folder]], cwd=ROOT / folder, capture_output=True, text=True, check=True
    )
    assert {name for name in files if ".dist-info/" not in name} == set(listed.stdout.splitlines())
    assert f"{PACKAGES[folder]}/py.typed" in files
    (licence,) = [content for name, content in files.items() if name.endswith("/licenses/LICENSE")]
    assert licence == (ROOT / "LICENSE").read_bytes()


@distributions
def test_the_metadata_is_complete(dist: Path, folder: str) -> None:
    """It has name, version, licence, README, keywords, addresses, and a classifier for each Python of `make matrix`."""
    metadata = metadata_of(wheel_of(dist, folder))
    assert (metadata["Name"], metadata["Version"]) == (PACKAGES[folder].replace("_", "-"), "0.1.0")
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / folder / "README.md").read_text().strip()
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    found = re.search(r"versions=\((3.*)\)", (ROOT / "scripts" / "matrix").read_text())
    assert found is not None
    tested = [f"Programming Language :: Python :: {version}" for version in found[1].split() if version[-1] != "t"]
    assert [line for line in classifiers if line.startswith("Programming Language :: Python :: 3.")] == tested
    assert "kafka" in metadata["Keywords"]
    addresses = [line.partition(",")[0] for line in metadata.get_all("Project-URL", [])]
    assert addresses == ["Documentation", "Source", "Issues", "Changelog"]


def test_a_package_index_accepts_the_files(dist: Path) -> None:
    """`twine check --strict` renders the README of each wheel and of each sdist without a warning."""
    files = [*dist.glob("*.whl"), *dist.glob("*.tar.gz")]
    assert len(files) == 2 * len(PACKAGES)
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("PASSED") == len(files)


def test_the_reporter_installs_alone(dist: Path, tmp_path: Path) -> None:
    """In an empty environment it has two dependencies, and counts without a warning."""
    uv("venv", "-q", "--python", sys.executable, tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    (wheel,) = dist.glob("tallystream-[0-9]*.whl")
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


def test_the_command_installs_by_name(dist: Path, tmp_path: Path) -> None:
    """Whoever installs `tallystream[cli]` gets the command with all that it needs, without a flag."""
    uv("venv", "-q", "--python", sys.executable, tmp_path / "empty")
    programs = tmp_path / "empty" / "bin"
    wheels = (
        "--no-index",
        "--find-links",
        dist,
        "--find-links",
        download_dependencies(),
    )  # users have an index instead
    uv("pip", "install", "-q", "--python", programs / "python", *wheels, "tallystream[cli]")
    version = subprocess.run([programs / "tallystream", "--version"], capture_output=True, text=True, check=True)
    assert "0.1.0" in version.stdout
    helped = subprocess.run([programs / "tallystream", "lag", "--help"], capture_output=True, text=True, check=True)
    assert "consumer" in helped.stdout
