"""Reads the JSON that brokers and name servers write.

They use a Java library that does not quote keys of maps that are numbers, as in `{0:"10.0.0.1:10911"}`:
name servers up to 4.9.3 in routes, all versions in the cluster description.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headrace_rocketmq.errors import ProtocolError

# Strings are matched first, so that a text inside a string is never taken for a key. A string without end is matched as well,
# or the search would begin again at each quote in it.
_STRING_OR_NUMERIC_KEY = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|(?<=[{,])\s*(-?\d+)\s*(?=:)')


def _quote_key(match: re.Match[str]) -> str:
    key: str | None = match[1]
    return match[0] if key is None else f'"{key}"'


def loads(text: bytes) -> Any:
    """The value of a JSON text, numeric map keys as strings.

    Called for bodies of answers. Raises ProtocolError if it is not JSON then, either.
    """
    try:
        decoded = bytes(text).decode()
        try:
            return json.loads(decoded)
        except json.JSONDecodeError:
            return json.loads(_STRING_OR_NUMERIC_KEY.sub(_quote_key, decoded))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the answer's body is not JSON: {error}: {bytes(text[:200])!r}") from error
