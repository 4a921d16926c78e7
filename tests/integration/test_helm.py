"""The Helm chart in deploy/kubernetes, rendered by Helm itself, gives the objects of kustomize."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support import helm
from support.built import or_skip
from support.manifests import BASE, FOLDER, VERSIONS, base, standby

pytestmark = pytest.mark.integration

CHECKSUM = "checksum/config"
DIGEST = "@sha256:" + "0123456789abcdef" * 4
RESOURCES = {"requests": {"cpu": 2}, "limits": {"memory": "8Gi"}}


@pytest.fixture(scope="module")
def program() -> Path:
    """Helm from the cache, or a new build of it."""
    return or_skip(helm.find_or_build)


def run(program: Path, folder: Path, *arguments: str, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run Helm with values for the chart, in a home without plugins and settings."""
    path = folder / "values.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    command = [str(program), *arguments, str(FOLDER), "--values", str(path)]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


def rendered(program: Path, folder: Path, **values: Any) -> list[dict[str, Any]]:
    """Return the objects of the chart."""
    done = run(program, folder, "template", "tallystream", **values)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by kind and name, of which each is there once."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    return found


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pod templates of objects by component."""
    templates = (one["spec"]["template"] for one in objects if one["kind"] in ("Deployment", "StatefulSet"))
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in templates}


def checksums(objects: list[dict[str, Any]]) -> list[str]:
    """Take the checksum of the configuration from each pod template, and return them."""
    return [pod["metadata"].get("annotations", {}).pop(CHECKSUM) for pod in pods(objects).values()]


def of_kustomize(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return objects with what kustomize adds: the ConfigMap and the tags of the images."""
    (generated,) = BASE["configMapGenerator"]
    data = dict(literal.split("=", 1) for literal in generated["literals"])
    images = {one["name"]: f"{one['newName']}:{one['newTag']}" for one in BASE["images"]}
    for pod in pods(objects).values():
        pod["metadata"].setdefault("annotations", {})
        for container in pod["spec"]["containers"]:
            container["image"] = images[container["image"]]
    metadata = {"name": generated["name"]}
    return [*objects, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


@pytest.mark.parametrize("with_standby", [False, True], ids=["base", "standby"])
def test_the_chart_gives_the_objects_of_kustomize(program: Path, tmp_path: Path, with_standby: bool) -> None:
    """All of them are the same but for a checksum, by which pods start again when the ConfigMap changes."""
    objects = rendered(program, tmp_path, standby=with_standby)
    assert len(set(checksums(objects))) == 1
    assert by_name(objects) == by_name(of_kustomize(standby() if with_standby else base()))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_value_changes_what_it_says_and_nothing_else(program: Path, tmp_path: Path, version: str) -> None:
    """With all values the objects are valid, and differ from those of kustomize by the values alone."""
    values = {
        "images": {"spark": "localhost:5000/spark:1.0-a", "page": f"registry.example.com/page{DIGEST}"},
        "imagePullSecrets": ["registry"],
        "config": {"TALLYSTREAM_BOOTSTRAP_SERVERS": "a:9092,b:9092", "FORWARDED_ALLOW_IPS": "10.0.0.0/8"},
        "resources": {"aggregator": RESOURCES},
        "storageClass": "nfs",
        "standby": True,
        "networkPolicy": False,
    }
    objects = rendered(program, tmp_path, **values)
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)
    wanted = by_name(of_kustomize(standby()))
    wanted["ConfigMap", "tallystream"]["data"] |= values["config"]
    wanted["PersistentVolumeClaim", "tallystream-checkpoint"]["spec"]["storageClassName"] = "nfs"
    del wanted["NetworkPolicy", "tallystream"]
    for component, pod in pods(list(wanted.values())).items():
        (container,) = pod["spec"]["containers"]
        container["image"] = values["images"]["spark" if component == "aggregator" else "page"]  # type: ignore[index]
        pod["spec"]["imagePullSecrets"] = [{"name": "registry"}]
        if component == "aggregator":
            for kind, amounts in RESOURCES.items():
                container["resources"][kind] |= amounts
    assert set(checksums(objects)).isdisjoint(checksums(rendered(program, tmp_path)))
    assert by_name(objects) == wanted


def test_the_claim_of_one_aggregator_has_the_storage_class(program: Path, tmp_path: Path) -> None:
    """Without a standby the class is that of the pod's own claim."""
    objects = by_name(rendered(program, tmp_path, storageClass="fast"))
    (claim,) = objects["StatefulSet", "tallystream-aggregator"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"images": {"spark": "example.com:5000/spark"}},
            "images.spark: example.com:5000/spark has neither a tag nor a",
        ),
        ({"images": {"spark": 1}}, "at '/images/spark': got number, want string"),
        ({"config": {"INFLUXDB_TOKEN": "x"}}, "config.INFLUXDB_TOKEN: everybody who may read the release can read it"),
        (
            {"config": {"TALLYSTREAM_RETENTION_DAYS": 5}},
            "'/config/TALLYSTREAM_RETENTION_DAYS': got number, want string",
        ),
        ({"resources": {"shiper": {}}}, "at '/resources': additional properties 'shiper' not allowed"),
        ({"replicas": 2}, "additional properties 'replicas' not allowed"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_a_value_that_is_wrong_is_refused(program: Path, tmp_path: Path, values: dict[str, Any], sentence: str) -> None:
    """The error names the value and says what is wrong."""
    done = run(program, tmp_path, "template", "tallystream", **values)
    assert done.returncode != 0
    assert sentence in done.stderr


def test_helm_finds_no_fault_and_the_notes_name_the_secrets(program: Path, tmp_path: Path) -> None:
    """`helm lint` is content. The notes name every secret that a pod reads."""
    linted = run(program, tmp_path, "lint", "--strict")
    assert linted.returncode == 0, linted.stdout
    notes = (FOLDER / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    containers = [one for pod in pods(base()).values() for one in pod["spec"]["containers"]]
    secrets = {source["secretRef"]["name"] for one in containers for source in one["envFrom"] if "secretRef" in source}
    assert secrets <= set(re.findall(r"tallystream-[a-z-]+", notes))


def test_the_documented_values_are_accepted(program: Path, tmp_path: Path) -> None:
    """The example of docs/deploy.md changes the configuration and the images."""
    text = (FOLDER.parents[1] / "docs" / "deploy.md").read_text(encoding="utf-8")
    values = yaml.safe_load(text.partition("**Helm**")[2].split("```yaml\n")[1].split("```")[0])
    objects = rendered(program, tmp_path, **values)
    (config,) = (one["data"] for one in objects if one["kind"] == "ConfigMap")
    assert config.items() > values["config"].items()
    images = {container["image"] for pod in pods(objects).values() for container in pod["spec"]["containers"]}
    assert images == set(values["images"].values())
