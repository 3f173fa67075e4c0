"""Who may do what: users, tokens, sessions, limits, the audit log, TLS, and secrets by their names.

``AccessMiddleware`` checks every request to the API and enforces all rules that do not depend on jobs. ``Authority``
knows users, tokens and sessions. ``AuditLog`` keeps each change. The tables are in ``metadata``; the server makes them when it
starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.foundation.lazy_names import lazy_names

_MODULES = {
    "headrace_server.access.audit": ("AuditEntry", "AuditLog"),
    "headrace_server.access.authority": ("Authority", "Session", "Token", "User"),
    "headrace_server.access.errors": ("AccessDeniedError",),
    "headrace_server.access.limits": ("Limits",),
    "headrace_server.access.middleware": ("AccessMiddleware",),
    "headrace_server.access.origins": ("Origins",),
    "headrace_server.access.roles": ("PUBLIC", "Principal", "Role", "RoleTable"),
    "headrace_server.access.secret_places": ("SecretPlaces",),
    "headrace_server.access.tables": ("metadata",),
    "headrace_server.access.tls": ("TLSOptions",),
}
# The process of a job reads settings from this package. It must not import what only the server needs, SQLAlchemy above all.
__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from headrace_server.access.audit import AuditEntry as AuditEntry
    from headrace_server.access.audit import AuditLog as AuditLog
    from headrace_server.access.authority import Authority as Authority
    from headrace_server.access.authority import Session as Session
    from headrace_server.access.authority import Token as Token
    from headrace_server.access.authority import User as User
    from headrace_server.access.errors import AccessDeniedError as AccessDeniedError
    from headrace_server.access.limits import Limits as Limits
    from headrace_server.access.middleware import AccessMiddleware as AccessMiddleware
    from headrace_server.access.origins import Origins as Origins
    from headrace_server.access.roles import PUBLIC as PUBLIC
    from headrace_server.access.roles import Principal as Principal
    from headrace_server.access.roles import Role as Role
    from headrace_server.access.roles import RoleTable as RoleTable
    from headrace_server.access.secret_places import SecretPlaces as SecretPlaces
    from headrace_server.access.tables import metadata as metadata
    from headrace_server.access.tls import TLSOptions as TLSOptions
