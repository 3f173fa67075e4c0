"""Decides which server has which unit. Pure: the same input gives the same answer, so any server may decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: What a unit that runs weighs beside the cores that it uses: its process, its lease, its looks.
WEIGHT = 1.0
#: A unit that does not run.
WEIGHT_AT_REST = 0.05
#: Balance: a unit is moved if that makes the fullest of two servers emptier by more than this part of a running unit.
_GAIN_MIN = 0.5


@dataclass(frozen=True)
class Place:
    """A server that can be given units. ``cores``: how much it can do, compared with the others."""

    name: str
    machine: str
    data: str
    cores: int = 1


@dataclass(frozen=True)
class Load:
    """A unit to be placed."""

    unit: str
    weight: float
    #: The server that has it, also one that is no place any more.
    server: str | None = None
    #: The machine of the process that runs it, if one may still.
    machine: str | None = None
    #: The id of the only data directory that has its state.
    home: str | None = None
    #: It stays where it is if that is a place.
    fixed: bool = False


def spread(places: Iterable[Place], loads: Iterable[Load]) -> dict[str, str | None]:
    """Return the server of each unit; None: no server can have it now.

    Guarantees: a unit whose server is a place stays there unless a move makes the balance clearly better; a unit with a home is given
    to the server with that data directory only; ``spread`` of its own answer changes nothing. A unit without a server goes to its
    process's machine if the other servers there are not clearly fuller, else to the emptiest server.
    """
    by_name = {each.name: each for each in sorted(places, key=lambda place: place.name)}
    ordered = sorted(loads, key=lambda load: (-load.weight, load.unit))
    found: dict[str, str | None] = {}
    filled = dict.fromkeys(by_name, 0.0)
    waiting = []
    for load in ordered:
        allowed = _allowed(load, by_name)
        if load.server in allowed:
            _put(load, load.server or "", found, filled)
        elif not allowed:
            found[load.unit] = None
        else:
            waiting.append(load)
    for load in waiting:
        _put(load, _emptiest(load, _allowed(load, by_name), by_name, filled), found, filled)
    _balance(by_name, ordered, found, filled)
    return found


def _allowed(load: Load, places: Mapping[str, Place]) -> list[str]:
    return [name for name, place in places.items() if load.home is None or place.data == load.home]


def _put(load: Load, name: str, found: dict[str, str | None], filled: dict[str, float]) -> None:
    found[load.unit] = name
    filled[name] += load.weight


def _emptiest(load: Load, allowed: list[str], places: Mapping[str, Place], filled: Mapping[str, float]) -> str:
    def fullness(name: str) -> tuple[float, str]:
        # A process that runs on this machine can be taken over as it is, which is worth a fuller server.
        near = WEIGHT if load.machine is not None and places[name].machine == load.machine else 0.0
        return (filled[name] + load.weight - near) / places[name].cores, name

    return min(allowed, key=fullness)


def _balance(
    places: Mapping[str, Place], ordered: list[Load], found: dict[str, str | None], filled: dict[str, float]
) -> None:
    """Move units from the fullest to the emptiest server, one by one, as long as each move is worth it."""
    movable = [load for load in ordered if load.home is None and not load.fixed and found[load.unit] is not None]
    for _ in range(len(movable) * max(1, len(places))):
        best: tuple[float, str, str, Load] | None = None
        for load in movable:
            source = places[found[load.unit] or ""]
            for target in places.values():
                if target is source:
                    continue
                before = max(filled[source.name] / source.cores, filled[target.name] / target.cores)
                after = max(
                    (filled[source.name] - load.weight) / source.cores,
                    (filled[target.name] + load.weight) / target.cores,
                )
                # In running units of the larger of the two servers, so that the threshold means the same on all.
                gain = (before - after) * max(source.cores, target.cores)
                if gain > _GAIN_MIN * min(WEIGHT, load.weight) and (best is None or gain > best[0]):
                    best = (gain, target.name, load.unit, load)
        if best is None:
            return
        _, name, unit, load = best
        filled[found[unit] or ""] -= load.weight
        found[unit] = name
        filled[name] += load.weight
