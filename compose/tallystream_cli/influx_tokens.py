"""Create an InfluxDB token for each service of compose.yaml, with only the permissions that the service needs.

`python -m tallystream_cli.influx_tokens FOLDER` creates the tokens that are missing and writes each to
FOLDER/SERVICE/token. The server, the organization, the bucket and a token that may create others come from the
environment, as for every command. It can run again at any time: an existing token with the same permissions is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from influxdb_client import AuthorizationPostRequest, AuthorizationsService, Permission
from influxdb_client.domain.permission_resource import PermissionResource
from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator import files
from tallystream_aggregator.sinks.http import connection_problem
from tallystream_aggregator.sinks.influxdb.sink import open_client
from tallystream_aggregator.sinks.stores import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from influxdb_client import Authorization, InfluxDBClient

PERMISSIONS = {
    "shipper": ("write",),
    "lag": ("read", "write"),  # it reads its history after a restart, and downsamples old lag
    "page": ("read",),
    "grafana": ("read",),
}
"""What each service may do with the bucket."""


def create_tokens(settings: StoreSettings, folder: Path) -> None:
    """Create the tokens that are missing and write each to its file.

    A token of a service with other permissions is deleted, for example after the bucket was replaced.

    Raises:
        ConfigError: the organization or the bucket does not exist, the token may not create others, or a file can't
            be written.
        TallystreamError: InfluxDB does not answer.
    """
    with open_client(settings.where, token=settings.token, org=settings.org, ca_file=settings.ca_file) as client:
        try:
            org, bucket = _find(client, settings)
            api = AuthorizationsService(client.api_client)
            existing = api.get_authorizations(org_id=org).authorizations
            for service in PERMISSIONS:
                _write(folder / service, _token(api, existing, service, org, bucket))
        except ApiException as error:
            if not error.status:  # TLS failed before a response
                raise TallystreamError(f"InfluxDB {settings.where}: {error.reason}.") from error
            if error.status == 404:
                raise ConfigError("INFLUXDB_BUCKET", settings.bucket, "create the bucket, or name another") from None
            raise ConfigError(
                "INFLUXDB_TOKEN", "***", f"InfluxDB rejects it ({error.status}): name one that may create tokens"
            ) from None
        except HTTPError as error:
            raise TallystreamError(f"InfluxDB {settings.where}: {connection_problem(error)}.") from error


def _find(client: InfluxDBClient, settings: StoreSettings) -> tuple[str, str]:
    """Return the IDs of the organization and of the bucket."""
    orgs = [one.id for one in client.organizations_api().find_organizations() if one.name == settings.org]
    if not orgs:
        raise ConfigError("INFLUXDB_ORG", settings.org, "name an organization that INFLUXDB_TOKEN may manage")
    (bucket,) = client.buckets_api().find_buckets(name=settings.bucket, org_id=orgs[0]).buckets
    return orgs[0], bucket.id


def _token(api: AuthorizationsService, existing: Iterable[Authorization], service: str, org: str, bucket: str) -> str:
    actions, description = PERMISSIONS[service], f"tallystream {service}: bucket {bucket}"
    required = {(action, "buckets", bucket) for action in actions}
    for token in existing:
        if token.description != description:
            continue
        permitted = {(p.action, p.resource.type, p.resource.id) for p in token.permissions}
        if token.status == "active" and permitted == required:
            return str(token.token)
        api.delete_authorizations_id(auth_id=token.id)
    resource = PermissionResource(type="buckets", id=bucket, org_id=org)
    permissions = [Permission(action=action, resource=resource) for action in actions]
    created = api.post_authorizations(AuthorizationPostRequest(org, permissions=permissions, description=description))
    return str(created.token)


def _write(folder: Path, token: str) -> None:
    path = folder / "token"
    try:
        if not path.exists() or path.read_bytes() != token.encode():
            files.write_file(path, token.encode())
        # The folder is a volume of this service alone, which may run as another user.
        path.chmod(0o444)
    except OSError as error:
        raise ConfigError("folder", str(folder), f"allow this user to write it ({error.strerror})") from error


def main(arguments: list[str], env: Mapping[str, str] | None = None) -> int:
    """Create the tokens. Return the exit code: 2 if a setting can't be used, 1 if InfluxDB does not answer."""
    try:
        create_tokens(StoreSettings.parse("influxdb", env=env), Path(*arguments))
    except TallystreamError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
