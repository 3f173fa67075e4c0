"""Compiles hyperscan databases in a process of its own, so that no batch waits for it.

``hs_compile_lit_multi`` is called with the interpreter's lock held: with a thousand literals no other thread of the
process does anything for some 35 ms. Where new rules are made ready beside those in use, the work is sent to a child with
low priority, which hands back the database as hyperscan writes it. Called as ``python -m headrace_rules.compiling``.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

logger = logging.getLogger(__name__)
#: Fewer literals are compiled in a few milliseconds.
_APART_FROM = 100
_TIMEOUT_SECONDS = 120
#: How long a thread that makes rules ready keeps the interpreter's lock when another one wants it; Python's own is 5 ms,
#: which a batch would wait for at each of its calls of polars.
_SWITCH_SECONDS = 0.0002

_apart: ContextVar[bool] = ContextVar("apart", default=False)
_lock = threading.Lock()
_behind = 0
_switch_seconds_before = 0.0


@contextmanager
def behind_batches() -> Iterator[None]:
    """Within it, what this thread compiles is compiled apart, and it gives the interpreter's lock away soon.

    Entered by threads that make rules ready while others process batches.
    """
    global _behind, _switch_seconds_before
    token = _apart.set(True)
    with _lock:
        if not _behind:
            _switch_seconds_before = sys.getswitchinterval()
            sys.setswitchinterval(min(_SWITCH_SECONDS, _switch_seconds_before))
        _behind += 1
    try:
        yield
    finally:
        with _lock:
            _behind -= 1
            if not _behind:
                sys.setswitchinterval(_switch_seconds_before)
        _apart.reset(token)


def compiled_apart(literals: Sequence[bytes], caseless: Sequence[bool]) -> bytes | None:
    """Return a database compiled by a child process; None where that is not worth it, or failed."""
    if not _apart.get() or len(literals) < _APART_FROM or not sys.executable:
        return None
    order = json.dumps([[literal.hex(), fold] for literal, fold in zip(literals, caseless, strict=True)])
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=order.encode(),
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("rules: no process to compile them in, this one does it: %s", error)
        return None
    if done.returncode or not done.stdout:
        logger.warning("rules: they could not be compiled apart, this process does it: %s", done.stderr.decode()[-500:])
        return None
    return done.stdout


def compile_literals(literals: Sequence[bytes], caseless: Sequence[bool]) -> Any:
    """Return a hyperscan database of literals. Holds the interpreter's lock."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=list(literals),
        ids=list(range(len(literals))),
        elements=len(literals),
        flags=[hyperscan.HS_FLAG_CASELESS if fold else 0 for fold in caseless],
        literal=True,
    )
    return database


def main() -> None:
    """Compile what comes on standard input; be a child of ``compiled_apart``."""
    import hyperscan

    if hasattr(os, "nice"):
        os.nice(5)
    order = json.load(sys.stdin)
    database = compile_literals([bytes.fromhex(literal) for literal, _ in order], [fold for _, fold in order])
    sys.stdout.buffer.write(hyperscan.dumpb(database))


if __name__ == "__main__":
    main()
