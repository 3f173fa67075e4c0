"""Who may do what: users, tokens, sessions, limits, the audit log, TLS, and secrets by their names.

``AccessMiddleware`` checks every request to the API and enforces all rules that do not depend on jobs. ``Authority``
knows users, tokens and sessions. ``AuditLog`` keeps each change. The tables are in ``metadata``; the server makes them when it
starts.
"""

from __future__ import annotations

from headrace_server.access.audit import AuditEntry, AuditLog
from headrace_server.access.authority import Authority, Session, Token, User
from headrace_server.access.errors import AccessDeniedError
from headrace_server.access.limits import Limits
from headrace_server.access.middleware import AccessMiddleware
from headrace_server.access.origins import Origins
from headrace_server.access.roles import PUBLIC, Principal, Role, RoleTable
from headrace_server.access.secret_places import SecretPlaces
from headrace_server.access.tables import metadata
from headrace_server.access.tls import TLSOptions

__all__ = [
    "PUBLIC", "AccessDeniedError", "AccessMiddleware", "AuditEntry", "AuditLog", "Authority", "Limits", "Origins", "Principal",
    "Role", "RoleTable", "SecretPlaces", "Session", "TLSOptions", "Token", "User", "metadata",
]  # fmt: skip
