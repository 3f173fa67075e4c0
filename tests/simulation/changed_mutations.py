"""Planted bugs of what a start compares with the checkpoint before: mistakes that a changed job would show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.plan.state_check import check_definitions
from headrace_light import savepoint_places
from headrace_light.stages import local

from tests.simulation.planting import Mutation, in_place_of


def _definitions_only(_: Any) -> Any:
    return lambda plan, stored, counts, *, place: check_definitions(plan, stored.definitions, place=place)


#: Those that histories of jobs that are changed must find.
OF_CHANGES: Mapping[str, Mutation] = {
    "changes: definitions of states are not compared": in_place_of(
        local, "check_definitions", lambda _: lambda *arguments, **options: frozenset()
    ),
    "changes: numbers of shards are not compared": in_place_of(local, "_check_checkpoint", _definitions_only),
    "changes: a source that is gone is not noticed": in_place_of(
        savepoint_places, "lost_sources", lambda _: lambda plan, stored: frozenset()
    ),
}
