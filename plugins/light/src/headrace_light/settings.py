"""The options of the light backend."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings, option, parse_size

#: Freed memory that each process keeps for its next batches: a few batches of the usual size.
KEPT_BYTES_MAX = 64 * 1024**2
#: With a limit for the memory of its state, the main process keeps this: else 60 to 100 MB more than the limit are lost between the
#: arrays and blocks that are replaced all the time.
KEPT_BYTES_WITH_LIMIT = 1024**2
_STATE_MEMORY_MIN = 1_000_000


class LightSettings(Settings, frozen=True, kw_only=True):
    """Options of the light backend."""

    retry_timeout: Annotated[timedelta, option("how long a source may be unavailable before the job fails")] = (
        timedelta(minutes=5)
    )
    idle_wait_max: Annotated[
        timedelta, option("longest pause between two polls of queues that have no new records")
    ] = timedelta(milliseconds=200)
    workers: Annotated[
        int,
        option(
            "processes that decode and transform records: this one, which also reads, keeps state and writes, and workers - 1 others; "
            "0: as many as there are cores",
            ge=0,
        ),
    ] = 1
    memory_max_bytes: Annotated[
        int,
        option(
            "resident memory that this process and its workers may take: near to it less is read and caches are written out, "
            "and a job that needs more "
            "ends and says what takes it; 0: no limit",
            ge=0,
        ),
    ] = 0
    shards: Annotated[
        int, option("number of shards of the keyed state; fixed by the first start with a checkpoint", ge=1)
    ] = 1
    state_store: Annotated[
        str | None,
        option(
            "installed state store that keeps the keyed state; default: directory, or topic with reliability='high'"
        ),
    ] = None
    state_memory: Annotated[
        int | str | None,
        option(
            "how much memory keyed state may use, such as '1 GB'; rows that are not in use are kept on the local disk then; "
            "default: all state is in memory"
        ),
    ] = None
    reliability: Annotated[
        Literal["high", "fast"] | None,
        option(
            "how instances share keyed state: 'high' keeps it on the broker or in a shared store; 'fast' keeps it on this machine, and "
            "it is lost when a shard moves; default: not shared, one process runs the job"
        ),
    ] = None
    shared_reading: Annotated[
        bool,
        option(
            "whether jobs of this process that read the same topics fetch and decode records once; such a job is no member of its consumer "
            "group, so only one process may run it"
        ),
    ] = False
    quick_start: Annotated[
        bool,
        option(
            "with reliability: a shard that moved gives results before all of its state is loaded; needs state_store='mysql' "
            "and verbs that support it (see several-instances.md)"
        ),
    ] = True
    state_options: Annotated[
        dict[str, Any],
        option("options of the state store; a store on disk is below the checkpoint unless they name another place"),
    ] = msgspec.field(default_factory=dict)

    def validate(self) -> None:
        for name, other in (("workers", self.workers != 1), ("reliability", self.reliability is not None)):
            if self.shared_reading and other:
                raise OptionError(
                    f"cannot be used together with {name}: jobs share what one process reads, and it reads all of it",
                    option="shared_reading",
                    hint=f"leave out {name} or shared_reading",
                )
        size = self.state_memory_bytes
        if size is not None and size < _STATE_MEMORY_MIN:
            raise OptionError(
                f"unusable value {self.state_memory!r}: the minimum is 1 MB: with less memory for its state, a job would only read state "
                "from disk",
                option="state_memory",
                hint="give a number of bytes, or a text with a unit, such as '1 GB'",
            )

    @property
    def state_memory_bytes(self) -> int | None:
        """``state_memory`` in bytes. Raises OptionError."""
        if self.state_memory is None:
            return None
        try:
            return parse_size(self.state_memory)
        except ValueError as error:
            raise OptionError(f"unusable value: {error}", option="state_memory", hint="such as '1 GB'") from error
