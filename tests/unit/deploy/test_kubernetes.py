"""The manifests in deploy/kubernetes are valid by the API's schema and match the commands, images and ports."""

from __future__ import annotations

import json
import re
from typing import Any

import kubernetes_validate
import pytest
from typer.main import get_command

from support import images
from support.manifests import BASE, FOLDER, VERSIONS, base, documents, standby
from tallystream_cli import main

TEMPLATES = ("spark/driver-pod.yaml", "spark/executor-pod.yaml")
COMPONENTS = ("aggregator", "shipper", "lag", "page")
"""The components, which have the names of their services in compose.yaml."""
LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context of every container."""


def workloads(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the objects that run pods, by component."""
    return {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one
        for one in objects
        if one["kind"] in ("Deployment", "StatefulSet")
    }


def container(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the only container of a workload."""
    (one,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(one)


SPARK = documents("spark/driver.yaml", *TEMPLATES)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("objects", [base(), standby(), SPARK], ids=["base", "standby", "spark"])
def test_every_object_is_valid_by_the_schema(objects: list[dict[str, Any]], version: str) -> None:
    """Validation is strict: an unknown field is an error."""
    assert objects
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_is_started_as_in_compose(name: str, services: dict[str, Any]) -> None:
    """Image, arguments, environment variables and the time for a clean stop are the same."""
    workload, service = workloads(base())[name], services[name]
    one = container(workload)
    assert one["args"] == service["command"]
    assert one["image"] == service["image"].partition(":")[0]
    (tag,) = (image["newTag"] for image in BASE["images"] if image["name"] == one["image"])
    assert f"{one['image']}:{tag}" == service["image"]
    given = {literal.partition("=")[0] for literal in BASE["configMapGenerator"][0]["literals"]}
    secrets = {
        f"tallystream-influxdb-{name}": {"INFLUXDB_TOKEN"},
        "tallystream-page": {"TALLYSTREAM_PAGE_PASSWORD"},
        "tallystream-kafka": set(),
    }
    for source in one["envFrom"]:
        given |= secrets[source["secretRef"]["name"]] if "secretRef" in source else set()
    wanted = {variable.replace("INFLUXDB_TOKEN_FILE", "INFLUXDB_TOKEN") for variable in service["environment"]}
    # Compose publishes the ports on loopback, so it limits the hosts. Probes and scrapes in a cluster name any.
    assert wanted - {"TALLYSTREAM_ALLOWED_HOSTS"} <= given
    grace = f"{workload['spec']['template']['spec']['terminationGracePeriodSeconds']}s"
    assert grace == service["stop_grace_period"]


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_probes_use_the_served_port_and_paths(name: str) -> None:
    """Liveness uses `/healthz` and readiness `/readyz`. The page has one path for both. The port is that in `args`."""
    one = container(workloads(base())[name])
    (port,) = (entry["containerPort"] for entry in one["ports"])
    assert str(port) in one["args"]
    alive = {one[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")}
    ready = one["readinessProbe"]["httpGet"]["path"]
    assert (alive, ready) == (({"/_stcore/health"}, "/_stcore/health") if name == "page" else ({"/healthz"}, "/readyz"))


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_pod_has_the_least_privileges(name: str) -> None:
    """It has no root user, capabilities or API token, a read-only file system, and resource limits."""
    pod = workloads(base())[name]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    user = images.final_stage({"tallystream-spark": "spark"}.get(container(workloads(base())[name])["image"], "page"))
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user["USER"][-1]
    one = container(workloads(base())[name])
    assert one["securityContext"] == LOCKED
    assert one["resources"].keys() == {"requests", "limits"}
    assert {mount["name"] for mount in one["volumeMounts"]} >= {"tmp"}


def test_no_manifest_contains_a_secret() -> None:
    """The manifests name secrets and do not create them."""
    assert not [one for one in [*base(), *standby()] if one["kind"] == "Secret"]
    assert "secretGenerator" not in BASE
    text = json.dumps(base())
    assert "TOKEN" not in text
    assert "PASSWORD" not in text


def test_the_checkpoint_is_kept_when_its_pod_or_set_is_deleted() -> None:
    """The pod's own claim is retained. With a standby, both pods share a claim that several nodes can write."""
    spec = workloads(base())["aggregator"]["spec"]
    assert spec["replicas"] == 1
    assert set(spec["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    objects = standby()
    spec = workloads(objects)["aggregator"]["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (2, "Parallel")
    assert "volumeClaimTemplates" not in spec
    (claim,) = (one for one in objects if one["kind"] == "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    claims = [
        one["persistentVolumeClaim"] for one in spec["template"]["spec"]["volumes"] if "persistentVolumeClaim" in one
    ]
    assert claims == [{"claimName": claim["metadata"]["name"]}]


def test_a_standby_is_ready_for_kubernetes() -> None:
    """`/readyz` is 503 while it stands by: an update would never go on to the other pod, nor a drain evict it."""
    assert container(workloads(standby())["aggregator"])["readinessProbe"]["httpGet"]["path"] == "/healthz"


def test_every_selector_matches_pods() -> None:
    """Services, budgets and policies select labels that a workload's pods have."""
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in workloads(base()).values()]
    for one in base():
        spec = one["spec"]
        selectors = {
            "Service": lambda spec=spec: spec["selector"],
            "PodDisruptionBudget": lambda spec=spec: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda spec=spec: spec["podSelector"]["matchLabels"],
        }
        if one["kind"] in selectors:
            wanted = selectors[one["kind"]]()
            assert any(wanted.items() <= labels.items() for labels in pods), one["metadata"]["name"]


def test_the_policy_lets_the_parts_of_spark_reach_each_other() -> None:
    """Driver and executors have the label of the pods whose connections it limits, and take any ports."""
    (policy,) = (one["spec"] for one in base() if one["kind"] == "NetworkPolicy")
    open_to = [
        source["podSelector"]["matchLabels"]
        for one in policy["ingress"]
        if "ports" not in one
        for source in one["from"]
    ]
    for template in documents(*TEMPLATES):
        labels = template["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
        assert any(wanted.items() <= labels.items() for wanted in open_to)


def test_the_submit_script_names_existing_files_and_options() -> None:
    """It names existing files, claims and accounts, and options of `aggregate`."""
    script = (FOLDER / "spark" / "submit").read_text(encoding="utf-8")
    for name in re.findall(r'"\$here/([\w.-]+)"', script):
        assert f"spark/{name}" in TEMPLATES
    arguments = script.partition("tally.py")[2].replace("\\\n", " ").replace('"$@"', "").split()
    assert arguments[0] == "aggregate"
    command: Any = get_command(main.app)
    command.commands["aggregate"].make_context("aggregate", arguments[1:])
    accounts = {one["metadata"]["name"] for one in SPARK if one["kind"] == "ServiceAccount"}
    claims = {one["metadata"]["name"] for one in SPARK if one["kind"] == "PersistentVolumeClaim"}
    assert set(re.findall(r"serviceAccountName=(\S+)", script)) == accounts
    assert set(re.findall(r"claimName=(\S+)", script)) == claims


def test_spark_on_kubernetes_authenticates_and_encrypts() -> None:
    """Executors authenticate, network traffic and spilled data are encrypted, and the file system is read-only."""
    script = (FOLDER / "spark" / "submit").read_text(encoding="utf-8")
    given = dict(re.findall(r"--conf (\S+?)=(\S+)", script))
    for name in ("authenticate", "network.crypto.enabled", "io.encryption.enabled"):
        assert given[f"spark.{name}"] == "true"
    assert given["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert given["spark.ui.enabled"] == "false"
    for template in documents(*TEMPLATES):
        (one,) = template["spec"]["containers"]
        assert one["securityContext"] == LOCKED
        assert {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]} == {"tmp": "/tmp"}
        assert [volume["name"] for volume in template["spec"]["volumes"]] == ["tmp"]
