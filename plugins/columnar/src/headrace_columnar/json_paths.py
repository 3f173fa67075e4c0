"""Paths into JSON: ``$.store.book[0]['full title']``, ``[*]`` for all elements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_STEP = re.compile(r"\.([^.\[\]'\"*\s]+)|\.\"([^\"]*)\"|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]|(\[\*\]|\.\*)")


class Missing:
    """The type of MISSING: there is no value at a path (which is not the same as the value null)."""


MISSING: Final = Missing()


class PathError(ValueError):
    """A path that cannot be read; the text says why."""


class _Every:
    """A step to all elements."""


_EVERY: Final = _Every()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path; ``lax`` ones treat a missing step as empty, others (``strict``, the default) as an error."""

    steps: Sequence[str | int | _Every]
    lax: bool = False

    def find(self, value: Any) -> Any:
        """Return the value at the path in a decoded value, or MISSING; a list if the path has ``[*]``."""
        return _find(value, self.steps)


def _find(value: Any, steps: Sequence[str | int | _Every]) -> Any:
    for place, step in enumerate(steps):
        if isinstance(step, _Every):
            if not isinstance(value, list | dict):
                return MISSING
            elements = value if isinstance(value, list) else list(value.values())
            rest = steps[place + 1 :]
            found = [below for one in elements if (below := _find(one, rest)) is not MISSING]
            return found or MISSING
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
    return value


def parse_path(text: str) -> JsonPath:
    """Read a path; it may begin with ``lax`` or ``strict``. Raises PathError."""
    mode, _, rest = text.strip().partition(" ")
    lax = mode.lower() == "lax"
    path = rest.strip() if mode.lower() in ("lax", "strict") else text.strip()
    if not path.startswith("$"):
        raise PathError(f"a JSON path begins with '$': {text!r}")
    steps: list[str | int | _Every] = []
    position = 1
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise PathError(f"cannot read {path[position:]!r} in the JSON path {text!r}")
        if found[6]:
            steps.append(_EVERY)
        elif found[3]:
            steps.append(int(found[3]))
        else:
            steps.append(next(name for name in (found[1], found[2], found[4], found[5]) if name is not None))
        position = found.end()
    return JsonPath(tuple(steps), lax)
