"""The app, the instance and the tags of OTLP data: from attributes of the resource and of the points."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream.record import MAX_NAME, MAX_TAG_NAME, MAX_TAG_VALUE, MAX_TAGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.resource.v1 import resource_pb2 as pb

UNKNOWN_SERVICE = "unknown_service"
"""The app of a resource without `service.name`: the SDKs' own default."""

UNKNOWN_INSTANCE = "unknown"

INSTANCE_ATTRIBUTES = (
    "service.instance.id",
    "k8s.pod.uid",
    "k8s.pod.name",
    "container.id",
    "host.id",
    "host.name",
)
"""The attributes of a resource that may name its instance. The first one that it has is taken."""

MAX_INSTANCE_BYTES = 1024

SDK = "telemetry.sdk.language"
"""An attribute that the resource of every SDK has."""

MAX_BYTES = 16 << 20
"""The most bytes of resources that are kept, about. When there are more, all are dropped."""


class OtlpError(ValueError):
    """A record, the data of one resource, or a point that can't be read."""


class Resource(NamedTuple):
    """What the attributes of a resource say: its instance and its app, or why they can't be used."""

    instance: str | OtlpError
    app: str | OtlpError
    is_sdk: bool


class KnownResources:
    """The resources that were read before."""

    def __init__(self) -> None:
        self._resources: dict[bytes, Resource] = {}
        self._bytes = 0

    def find(self, raw: bytes) -> Resource | None:
        """Return a serialized resource, or None if it is not known."""
        return self._resources.get(raw)

    def read(self, message: pb.Resource, raw: bytes) -> Resource:
        """Return a resource, which is `raw` when serialized, and keep what `find` returns of it."""
        resource = self._resources.get(raw)
        if resource is None:
            attributes = texts_of(message.attributes)
            resource = Resource(_instance_of(attributes), _app_of(attributes), SDK in attributes)
            size = 4 * len(raw) + 500
            if self._bytes + size > MAX_BYTES:
                self._resources, self._bytes = {}, 0
            if size <= MAX_BYTES // 4:
                self._resources[raw] = resource
                self._bytes += size
        return resource


def _app_of(resource: Mapping[str, str]) -> str | OtlpError:
    """Return the app of a resource: `service.name`, after `service.namespace` and a slash if it has one."""
    name, namespace = resource.get("service.name") or UNKNOWN_SERVICE, resource.get("service.namespace")
    app = f"{namespace}/{name}" if namespace else name
    if len(app) > MAX_NAME or "\0" in app:
        return OtlpError(f"service.name has {len(app)} characters with service.namespace, or a NUL; {MAX_NAME} at most")
    return app


def _instance_of(resource: Mapping[str, str]) -> str | OtlpError:
    """Return the instance ID of a resource."""
    name = next((name for name in INSTANCE_ATTRIBUTES if resource.get(name)), None)
    instance = UNKNOWN_INSTANCE if name is None else resource[name]
    if name in (None, "host.id", "host.name") and resource.get("process.pid"):  # a host may run several
        instance = f"{instance}:{resource['process.pid']}"
    if len(instance.encode()) > MAX_INSTANCE_BYTES or "\0" in instance:
        return OtlpError(
            f"{name or 'process.pid'} can't be an instance ID: {MAX_INSTANCE_BYTES} bytes at most, without NUL"
        )
    return instance


def tags_of(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """Return the attributes of a point as tags. Of two attributes with one name, the last one is taken.

    Raises:
        OtlpError: they are more, or longer, than the tags of a metric may be.
    """
    tags = texts_of(attributes)
    if len(tags) > MAX_TAGS:
        raise OtlpError(f"the point has {len(tags)} attributes; the limit is {MAX_TAGS}")
    for name, value in tags.items():
        if not 1 <= len(name) <= MAX_TAG_NAME or len(value) > MAX_TAG_VALUE or "\0" in name or "\0" in value:
            raise OtlpError(
                f"the attribute {name[:MAX_TAG_NAME]!r} can't be a tag: names have 1 to {MAX_TAG_NAME} characters, "
                f"values up to {MAX_TAG_VALUE}, without NUL"
            )
    return tags


def texts_of(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """Return attributes as text."""
    return {one.key: one.value.string_value or text_of(one.value) for one in attributes}


def text_of(value: AnyValue) -> str:
    """Return the value of an attribute as text: what is not text is JSON, bytes are in base64."""
    content = _content(value)
    if isinstance(content, int) and not isinstance(content, bool):
        return str(content)
    return content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), sort_keys=True)


_PLAIN = {"string_value", "bool_value", "int_value", "double_value"}


def _content(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "array_value":
        return [_content(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: _content(one.value) for one in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind in _PLAIN else ""
