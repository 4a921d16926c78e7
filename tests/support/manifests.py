"""The objects of deploy/kubernetes, as kustomize makes them."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from support import images

FOLDER = images.ROOT / "deploy" / "kubernetes"
BASE = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())
VERSIONS = ("1.31", "1.37")
"""The versions of Kubernetes whose schemas the objects are checked against."""


def documents(*names: str) -> list[dict[str, Any]]:
    """Return the objects in files of deploy/kubernetes."""
    return [one for name in names for one in yaml.safe_load_all((FOLDER / name).read_text()) if one]


def patched(value: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an object after the operations add, replace and remove of a JSON patch (RFC 6902), as in kustomize."""
    result = copy.deepcopy(value)
    for one in operations:
        *parents, key = one["path"].strip("/").split("/")
        target: Any = result
        for parent in parents:
            target = target[int(parent) if isinstance(target, list) else parent]
        if isinstance(target, list):
            assert (one["op"], key) == ("add", "-")
            target.append(one["value"])
        elif one["op"] == "remove":
            del target[key]
        else:
            assert (key in target) is (one["op"] == "replace"), one
            target[key] = one["value"]
    return result


def base() -> list[dict[str, Any]]:
    """Return the objects of the base."""
    return documents(*(f"base/{name}" for name in BASE["resources"]))


def standby() -> list[dict[str, Any]]:
    """Return the objects of the overlay with a second aggregator."""
    overlay = yaml.safe_load((FOLDER / "standby" / "kustomization.yaml").read_text())
    (patch,) = overlay["patches"]
    (operations,) = documents(f"standby/{patch['path']}")
    target = (patch["target"]["kind"], patch["target"]["name"])
    found = [
        patched(one, operations) if (one["kind"], one["metadata"]["name"]) == target else one  # type: ignore[arg-type]
        for one in base()
    ]
    return [*found, *documents(*(f"standby/{name}" for name in overlay["resources"] if not name.startswith("..")))]
