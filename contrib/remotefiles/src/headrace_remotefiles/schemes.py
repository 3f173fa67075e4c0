"""The stores, by the schemes of their paths. headrace-file calls these functions with the options of a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret

from headrace_remotefiles.remote_files import RemoteFiles, Store

if TYPE_CHECKING:
    from headrace_file.settings import FileSourceSettings

_SECRET_NAMES = re.compile(r"secret|passw|passphrase|token|credential|account_key|sas|connection_string", re.IGNORECASE)
#: fsspec's own cache of lists is off: headrace caches lists, so that all status of files has the same age.
_UNCACHED: Mapping[str, Any] = {"use_listings_cache": False}
_PLACE = re.compile(r"\$\{.+\}")
#: Values of secret options that are not secrets but choose a way to log in: gcsfs has ``token="anon"`` for public
#: buckets.
_WAYS = frozenset({"anon", "browser", "cache", "cloud", "google_default"})


def s3(settings: FileSourceSettings) -> RemoteFiles:
    """Return the objects of S3 and of stores that speak its protocol."""
    return _made(settings, Store("s3fs", "s3", versions=True, options=_UNCACHED))


def gs(settings: FileSourceSettings) -> RemoteFiles:
    """Return the objects of Google Cloud Storage."""
    return _made(settings, Store("gcsfs", "gs", versions=True, options=_UNCACHED))


def abfs(settings: FileSourceSettings) -> RemoteFiles:
    """Return the blobs of Azure."""
    return _made(settings, Store("adlfs", "abfs", versions=True, options=_UNCACHED))


def http(settings: FileSourceSettings) -> RemoteFiles:
    """Return files of web servers."""
    for path in settings.paths:
        if "?" in path or "#" in path:
            raise _refused(
                "path",
                "an address has a query (after '?'), which may be a secret and would appear in queue names and logs",
            )
    # With compression during transfer, offsets of bytes would be wrong.
    return _made(settings, Store("aiohttp", "http", options={**_UNCACHED, "headers": {"Accept-Encoding": "identity"}}))


def sftp(settings: FileSourceSettings) -> RemoteFiles:
    """Return files of SSH servers."""
    options = dict(settings.storage_options)
    known_hosts = options.pop("known_hosts", "~/.ssh/known_hosts")
    if "host_key_policy" not in options:
        options["host_key_policy"] = lambda: _known_hosts_policy(known_hosts)
    return _made(settings, Store("paramiko", "sftp", one_at_a_time=True), options)


def _known_hosts_policy(path: str) -> Any:
    from headrace_remotefiles.known_hosts import KnownHostsPolicy  # paramiko is needed for SFTP alone

    return KnownHostsPolicy(path)


def _made(settings: FileSourceSettings, store: Store, options: Mapping[str, Any] | None = None) -> RemoteFiles:
    for path in settings.paths:
        parts = urlsplit(path)
        if parts.password is not None:
            raise _refused(
                "path",
                "a password in a path would appear in queue names and logs",
                'write it in storage_options={"password": "${VARIABLE}"}',
            )
        if not parts.netloc:
            raise _refused("path", f"{path!r} names no bucket or host")
    given = settings.storage_options if options is None else options
    _check_secrets(given)
    store.check_installed()
    return RemoteFiles(store, settings, given)


def _check_secrets(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if isinstance(value, Mapping):
            _check_secrets(value)
        elif (
            isinstance(value, str) and _SECRET_NAMES.search(name) and value not in _WAYS and not _PLACE.fullmatch(value)
        ):
            raise _refused(
                "storage_options",
                f"the value of {name!r} looks like a secret",
                f'refer to it by its place: {{"{name}": "${{VARIABLE}}"}}',
            )


def revealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the secrets that their places name. Raises OptionError if there is no secret at a place."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            found[name] = revealed(value)
        elif isinstance(value, str) and _PLACE.fullmatch(value):
            found[name] = Secret(value).reveal()
        else:
            found[name] = value() if callable(value) else value
    return found


def _refused(option: str, message: str, hint: str | None = None) -> OptionError:
    return OptionError(message, plugin="file", option=option, hint=hint)
