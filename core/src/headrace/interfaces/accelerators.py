"""Faster forms of functions that work on whole buffers, where a plug-in offers them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from headrace.interfaces.registry import default_registry

F = TypeVar("F", bound=Callable[..., object])


def accelerated(name: str, plain: F) -> F:
    """Return the function that a plug-in offers by ``headrace_accelerators``, otherwise ``plain``. Called once per process and function.

    ``HEADRACE_DECODERS=plain`` in the environment leaves it at ``plain``.
    """
    if os.environ.get("HEADRACE_DECODERS") == "plain" or not default_registry().has("accelerator", name):
        return plain
    made: F | None = default_registry().find("accelerator", name)()
    return plain if made is None else made
