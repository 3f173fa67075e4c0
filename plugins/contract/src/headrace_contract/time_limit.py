"""A time limit for checks: a plug-in that hangs fails its check, and does not block the other checks."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from headrace_contract.contract import ContractViolation


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Raise ContractViolation in a block that takes longer; the message says at which place it hangs.

    This works in the main thread, where pytest runs tests, even if the thread waits for a lock or a server. In other
    threads there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main = threading.main_thread().ident
    assert main is not None
    ended = threading.Event()

    def expired(number: int, frame: FrameType | None) -> None:
        where = "".join(traceback.format_stack(frame)[-6:]).rstrip()
        raise ContractViolation(
            f"the check ends within {seconds:g} s",
            f"it hangs here:\n{where}",
            "nothing in the plug-in may wait for ever, and offsets must grow; if it is only slow, increase check_time_max",
        )

    def watch() -> None:
        if not ended.wait(seconds):
            signal.pthread_kill(main, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, expired)
    watcher = threading.Thread(target=watch, name="contract time limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
