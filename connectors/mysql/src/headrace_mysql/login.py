"""Login without giving the password away: which methods a server may use when its identity is not verified.

The server chooses how the client proves that it knows the password. Some methods send the password itself, or encrypt it
with a key that the same server names. They are safe only on a connection whose certificate was checked; without this check, any
server at the address gets the password. The other methods send a hash of the password and of a number that the server made up.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase_authentication_methods.html
"""

from __future__ import annotations

from typing import Any, NoReturn

import pymysql
from headrace.foundation.errors import JobError
from pymysql import _auth

_HINT = (
    "set ssl_ca to the certificate of the server's authority (MySQL writes its own to ca.pem in its data directory), or "
    "ssl=True where the system knows the authority; a user with mysql_native_password (MariaDB: also ed25519) needs no TLS"
)


def login_methods(*, verified: bool) -> dict[str, type]:
    """Return the handlers by method for ``pymysql.connect(auth_plugin_map=…)``.

    ``verified``: whether TLS is insisted on and the certificate checked. Then every method may be used.
    """
    if verified:
        return {}
    return {
        "caching_sha2_password": _CachingSha2,
        "sha256_password": _Sha256,
        "mysql_clear_password": _Refused,
        "mysql_old_password": _Refused,
        "dialog": _Refused,
    }


class GuardedConnection(pymysql.connections.Connection):  # type: ignore[misc]
    """A connection whose first answer to the server holds the password only if the certificate was checked.

    PyMySQL uses TLS if the server offers it, does not check the certificate, and regards this as safe.
    """

    def __init__(self, *, verified: bool, **arguments: Any) -> None:
        self._verified = verified
        super().__init__(auth_plugin_map=login_methods(verified=verified), **arguments)

    def _request_authentication(self) -> None:
        # Called by PyMySQL when it has read the server's greeting, which names the first method.
        if not self._verified and self._auth_plugin_name == "sha256_password" and self.password:
            _refuse("sha256_password")
        super()._request_authentication()


def _refuse(method: str) -> NoReturn:
    raise JobError(
        f"the server asks for the password by {method!r}, which sends the password to the server, but the server's "
        "certificate was not checked",
        plugin="mysql",
        option="ssl",
        hint=_HINT,
    )


class _Refused:
    """Refuses a method."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """Take the server's request. Called by PyMySQL. Raises JobError."""
        _refuse("a method that sends the password itself")


class _Unverified:
    """The connection for PyMySQL's login methods when they must neither trust it nor accept a key from it."""

    _secure = False

    def __init__(self, connection: Any, method: str) -> None:
        self._connection = connection
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @property
    def server_public_key(self) -> bytes:
        """The key that would encrypt the password: no certificate proves that it is the server's. Raises JobError."""
        _refuse(self._method)

    @server_public_key.setter
    def server_public_key(self, value: bytes) -> None:
        _refuse(self._method)


class _CachingSha2(_Refused):
    """Logs in with a hash of the password that the server has cached; the full login, which needs the password, is refused."""

    def authenticate(self, packet: Any) -> Any:
        return _auth.caching_sha2_password_auth(_Unverified(self._connection, "caching_sha2_password"), packet)


class _Sha256(_Refused):
    def authenticate(self, packet: Any) -> Any:
        if not self._connection.password:
            return _auth.sha256_password_auth(_Unverified(self._connection, "sha256_password"), packet)
        _refuse("sha256_password")
