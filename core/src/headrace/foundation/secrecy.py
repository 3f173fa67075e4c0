"""Which names belong to secrets, and texts in which the values of such names are masked.

Options that are declared as ``Secret`` never show. But a SQL text, an address or a mapping of foreign properties may hold
a secret too, and an error that quotes it would write it into logs.
"""

from __future__ import annotations

import re

_NAME = (
    r"passw(?:or)?d|passwd|pwd|secret|token|credential|authorization|(?:private|signature|api|access)[._-]?key|jaas"
    r"|oauth\w*[._]config|\.pem\b"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
#: ``'password' = 'value'``, ``password='value'``, ``"password": "value"``; a value without an end goes to the end of the line.
_ASSIGNED = re.compile(
    rf"""(?P<name>['"`]?[\w.\-]*(?:{_NAME})[\w.\-]*['"`]?\s*(?:=>|=|:)\s*)(?P<quote>['"])(?P<value>(?:(?!(?P=quote))[^\n]|(?P=quote){{2}})*)""",
    re.IGNORECASE,
)
_UNQUOTED = re.compile(rf"(?P<name>[?&;][\w.\-]*(?:{_NAME})[\w.\-]*=)(?P<value>[^&\s'\"]*)", re.IGNORECASE)
_USER_PART = re.compile(r"(?P<name>\w[\w+.\-]*://[^\s/:@'\"]*:)(?P<value>[^\s/@'\"]+)(?=@)")
#: The placeholder of a value in a hint, or the name of an environment variable.
_NO_VALUE = re.compile(r"\$\{[^{}]*\}|[.…*]*")
_MASK = "*"
#: Properties whose names have a word such as "token" in them, but say where the secret is.
_PLACE_NAME = re.compile(r"(?:url|uri|location|path|file|class|endpoint|type|anon)$", re.IGNORECASE)
#: Values that are not secrets: what stands for "none", and what lets anybody in.
_NO_SECRETS = frozenset({"", "anon", "anonymous", "none", "true", "false"})


def is_secret_name(name: str) -> bool:
    """Return whether an option or property of that name holds a secret, as far as its name tells."""
    return _SECRET_NAME.search(name) is not None


def lets_in(name: str) -> bool:
    """Return whether a property or header of that name holds a secret itself, not the place of one, as far as its name tells."""
    return _PLACE_NAME.search(name) is None and (is_secret_name(name) or name.lower().endswith("cookie"))


def is_in_clear(value: str) -> bool:
    """Return whether the value of a secret is the secret itself: not a place such as ``${NAME}``, and not a word for none.

    Called by the lint of files in which users write options.
    """
    return "${" not in value and value.lower() not in _NO_SECRETS


def masked(text: str) -> str:
    """Return a text with the values of secret names as stars, one a character: places in the text stay where they are.

    Called for every text of a user that an error or a log line quotes.
    """
    for pattern in (_ASSIGNED, _UNQUOTED, _USER_PART):
        text = pattern.sub(_stars, text)
    return text


def _stars(found: re.Match[str]) -> str:
    if _NO_VALUE.fullmatch(found["value"]):
        return found[0]
    start, end = found.span("value")
    start, end = start - found.start(), end - found.start()
    whole = found[0]
    return whole[:start] + _MASK * (end - start) + whole[end:]
