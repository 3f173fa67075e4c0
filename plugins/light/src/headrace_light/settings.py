"""The options of the light backend."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from headrace.interfaces.settings import Settings, option


class LightSettings(Settings, frozen=True, kw_only=True):
    """Options of the light backend."""

    retry_timeout: Annotated[timedelta, option("how long a source may be away before the job fails")] = timedelta(
        minutes=5
    )
    idle_wait_max: Annotated[timedelta, option("longest pause between two looks at queues that had nothing new")] = (
        timedelta(milliseconds=200)
    )
    shards: Annotated[int, option("partitions of keyed state, fixed for a checkpoint", ge=1)] = 1
    state_store: Annotated[
        str | None,
        option("where keyed state is kept: an installed state store; default: directory, or topic where it moves"),
    ] = None
    reliability: Annotated[
        Literal["high", "fast"] | None,
        option(
            "share keyed stages with other instances of the job: 'high' keeps state with the broker (or a shared store), "
            "so that nothing is lost when shards move; 'fast' on this machine only; default: one process, all its own"
        ),
    ] = None
    quick_start: Annotated[
        bool,
        option(
            "with reliability: a shard that moves answers before all of its state is here, where the store gives single keys "
            "(mysql) and the verbs can (see several-instances.md)"
        ),
    ] = True
    state_options: Annotated[dict[str, Any], option("options of the state store; 'path' is below the checkpoint")] = (
        msgspec.field(default_factory=dict)
    )
