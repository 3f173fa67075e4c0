"""Named places in the code where a test can make a process fail. Off unless ``HEADRACE_FAULTS`` is set.

``HEADRACE_FAULTS="sink.after_insert:3:kill"`` kills the process (as ``kill -9`` does) when it passes that place for the
third time, and says so on its standard error; ``raise`` instead of ``kill`` raises RetriableError there. Several, separated
by commas. The places:

=========================  ==============================================================================
place                      moment
=========================  ==============================================================================
``reader.after_poll``      records were read, nothing was done with them
``lane.after_process``     operators are done, sinks have nothing yet
``sink.before_insert``     a batch is about to be inserted
``sink.after_insert``      a batch is stored, nobody knows it
``shard.after_process``    shards are done with an entry, sinks have nothing yet
``shard.before_state``     a shard is done with a micro-batch, its state is not stored (Spark)
``shard.after_state``      the state of a shard is stored, sinks have nothing yet (Spark)
``shard.after_save``       the state of the shards is stored, the checkpoint is not
``shard.after_settle``     the checkpoint is stored, and the rows on the local disk are those of it (``state_memory``)
``checkpoint.after_flush`` everything is stored, the checkpoint is not
``checkpoint.after_save``  the checkpoint is stored, the brokers do not know
``savepoint.after_state``  a savepoint has the state of one shard more
``savepoint.before_end``    all of a savepoint is written, it does not have its name
=========================  ==============================================================================
"""

from __future__ import annotations

import os
import signal

from headrace.foundation.errors import OptionError, RetriableError

VARIABLE = "HEADRACE_FAULTS"


class Faults:
    """The faults asked for, and how often each place was passed."""

    def __init__(self, text: str) -> None:
        self._wanted: dict[str, list[tuple[int, str]]] = {}
        self._passed: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            place, _, rest = part.partition(":")
            count, _, action = rest.partition(":")
            if not count.isdigit() or action not in ("kill", "raise"):
                raise OptionError(
                    f"{part!r} is not a fault: write place:count:kill or place:count:raise", option=VARIABLE
                )
            self._wanted.setdefault(place, []).append((int(count), action))

    def passed(self, place: str) -> None:
        """Count the place; fail there if that was asked for."""
        count = self._passed[place] = self._passed.get(place, 0) + 1
        for wanted, action in self._wanted.get(place, ()):
            if wanted == count and action == "kill":
                os.write(2, f"killed at {place}\n".encode())  # a test that waits for it cannot always see the process
                os.kill(os.getpid(), signal.SIGKILL)
            elif wanted == count:
                raise RetriableError(f"fault injected at {place!r}")


_faults = Faults(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def fault_point(place: str) -> None:
    """Mark a place where a test can make the process fail."""
    if _faults is not None:
        _faults.passed(place)
