"""A token of InfluxDB's for each part of the system, with no more permissions than the part needs.

`python -m tallystream_cli.influx_tokens FOLDER` creates the tokens that are missing, and writes each to
FOLDER/PART/token. The server, the organization, the bucket and a token that may create others are in the environment,
as for every command. It may run again at any time: a token that is there with these permissions stays.
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
from tallystream_aggregator.sinks.influxdb.sink import open_client
from tallystream_aggregator.sinks.stores import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from influxdb_client import Authorization, InfluxDBClient

PARTS = {
    "shipper": ("write",),
    "lag": ("read", "write"),  # it goes on with the ages that it knew, and thins out what is old
    "page": ("read",),
    "grafana": ("read",),
}
"""What each part may do with the one bucket."""


def make_tokens(settings: StoreSettings, folder: Path) -> None:
    """Create the tokens that are missing and write each to its file.

    A token of ours whose permissions are others, as after a bucket was replaced, is deleted.

    Raises:
        ConfigError: the organization or the bucket is not there, the token may not create others, or a file can't be
            written.
        TallystreamError: InfluxDB does not answer.
    """
    with open_client(
        settings.where, token=settings.token, org=settings.org, ca_file=settings.ca_file, client=settings.client
    ) as client:
        try:
            org, bucket = _find(client, settings)
            api = AuthorizationsService(client.api_client)
            found = api.get_authorizations(org_id=org).authorizations
            for part in PARTS:
                _write(folder / part, _token(api, found, part, org, bucket))
        except ApiException as error:
            if not error.status:  # TLS failed before there was an answer
                raise TallystreamError(f"InfluxDB {settings.where}: {error.reason}.") from error
            if error.status == 404:
                raise ConfigError("INFLUXDB_BUCKET", settings.bucket, "make the bucket, or name another") from None
            raise ConfigError(
                "INFLUXDB_TOKEN", "***", f"InfluxDB refuses it ({error.status}): name one that may create tokens"
            ) from None
        except HTTPError as error:
            raise TallystreamError(f"InfluxDB {settings.where}: {error}.") from error


def _find(client: InfluxDBClient, settings: StoreSettings) -> tuple[str, str]:
    """Return the IDs of the organization and of the bucket."""
    orgs = [one.id for one in client.organizations_api().find_organizations() if one.name == settings.org]
    if not orgs:
        raise ConfigError("INFLUXDB_ORG", settings.org, "name an organization that INFLUXDB_TOKEN may manage")
    (bucket,) = client.buckets_api().find_buckets(name=settings.bucket, org_id=orgs[0]).buckets
    return orgs[0], bucket.id


def _token(api: AuthorizationsService, found: Iterable[Authorization], part: str, org: str, bucket: str) -> str:
    actions, description = PARTS[part], f"tallystream {part}: bucket {bucket}"
    wanted = {(action, "buckets", bucket) for action in actions}
    for one in found:
        if one.description != description:
            continue
        if one.status == "active" and {(p.action, p.resource.type, p.resource.id) for p in one.permissions} == wanted:
            return str(one.token)
        api.delete_authorizations_id(auth_id=one.id)
    resource = PermissionResource(type="buckets", id=bucket, org_id=org)
    permissions = [Permission(action=action, resource=resource) for action in actions]
    made = api.post_authorizations(AuthorizationPostRequest(org, permissions=permissions, description=description))
    return str(made.token)


def _write(folder: Path, token: str) -> None:
    path = folder / "token"
    try:
        if not path.exists() or path.read_text(encoding="ascii") != token:
            files.write_file(path, token.encode("ascii"))
        # The folder is a volume of this part alone, whose user may be another one.
        path.chmod(0o444)
    except OSError as error:
        raise ConfigError("folder", str(folder), f"let this user write it ({error.strerror})") from error


def main(arguments: list[str], env: Mapping[str, str] | None = None) -> int:
    """Make the tokens; the exit code is 2 where a setting can't be used, 1 where InfluxDB does not answer."""
    try:
        make_tokens(StoreSettings.parse("influxdb", env=env), Path(*arguments))
    except TallystreamError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
