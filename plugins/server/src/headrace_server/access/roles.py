"""Roles, and which role a route needs."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headrace_server.access.errors import AccessDeniedError


class Role(enum.IntEnum):
    """The role of a user. Each role includes the permissions of the ones before it."""

    VIEWER = 1  # look at jobs, logs and metrics
    OPERATOR = 2  # start, stop, pause, save and roll back existing jobs
    AUTHOR = 3  # bring code, rules and settings; manage users and tokens

    @classmethod
    def of(cls, name: str) -> Role:
        """Return the role of that name in lower case. Raises ValueError for another."""
        for role in cls:
            if role.name.lower() == name:
                return role
        raise ValueError(f"{name!r} is not a role: {', '.join(role.name.lower() for role in cls)}")


Kind = Literal["token", "session", "files"]


@dataclass(frozen=True)
class Principal:
    """Who sent a request; ``scope["state"]["principal"]``."""

    name: str
    role: Role
    kind: Kind


def check_role(principal: Principal | None, needed: Role) -> None:
    """Raise AccessDeniedError unless somebody has this role or a higher one."""
    if principal is None:
        raise AccessDeniedError(401, "log in, or send a token in the header Authorization: Bearer")
    if principal.role < needed:
        raise AccessDeniedError(
            403, f"this needs the role {needed.name.lower()}; {principal.name} has {principal.role.name.lower()}"
        )


class _Public(enum.Enum):
    PUBLIC = "public"


#: For routes that anybody may ask: health, the page to log in.
PUBLIC = _Public.PUBLIC


class RoleTable:
    """Which role each route needs: ``RoleTable([("POST", "/v1/jobs/{name:path}/start", Role.OPERATOR), …])``.

    ``{x}`` matches a part without a slash, ``{x:path}`` any part. A path that no route declares needs ``AUTHOR``: a route that was
    forgotten is closed, not open. ``HEAD`` is ``GET``. The first route that fits counts, as in starlette: declare both in the same order.
    """

    def __init__(self, routes: Iterable[tuple[str, str, Role | _Public]]) -> None:
        self._routes = [(method, _pattern(path), role) for method, path, role in routes]

    def role_of(self, method: str, path: str) -> Role | _Public:
        """Return the role that a request needs."""
        method = "GET" if method == "HEAD" else method
        for declared, pattern, role in self._routes:
            if declared == method and pattern.fullmatch(path):
                return role
        return Role.AUTHOR


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+(?::path)?\})", path)
    texts = [
        re.escape(part) if not part.startswith("{") else ".+" if part.endswith(":path}") else "[^/]+" for part in parts
    ]
    return re.compile("".join(texts), re.DOTALL)
