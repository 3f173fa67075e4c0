"""As few inputs as reach all lines that many inputs reach: what is worth keeping in the corpus."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

from tests.fuzz.guided.target import Target

_Lines = set[tuple[str, int]]


def lines_of(target: Target, data: bytes) -> _Lines:
    """Return the lines of headrace that an input reaches, a fault included."""
    reached: _Lines = set()

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        return local if "headrace_" in frame.f_code.co_filename or "/headrace/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        target.check(data)
    except Exception:  # a fault was told before; here its lines count
        pass
    finally:
        sys.settrace(before)
    return reached


def minimized(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Return the inputs that reach lines which no shorter one reaches. The seeds of the target count as reached."""
    known: _Lines = set()
    for seed in target.seeds:
        known |= lines_of(target, seed)
    kept: list[bytes] = []
    for data in sorted(set(inputs), key=lambda each: (len(each), each)):
        reached = lines_of(target, data)
        if not reached <= known:
            known |= reached
            kept.append(data)
    return kept
