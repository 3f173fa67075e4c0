"""What a row must have so that a condition can be true.

A trigger is a set of *atoms*: "this column contains this text" or "this column has this value". A condition gives a
*need*, from which its trigger is chosen. Wherever the condition is true, at least one atom of the trigger is met. Where no
atom is met and no column of the atoms is NULL, the condition is FALSE, not NULL: conditions that can fail rely on that.

Needs are data that msgspec writes and reads, so that they can be stored (``condition_cache``). ``gc=False``: they hold no circles, and
thousands of rules have many of them, which the garbage collector need not visit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter

import msgspec
import polars as pl

from headrace_rules.literals import Fold


class Source(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A column, or a field within a column of structs: ``("labels", "zone")``."""

    path: tuple[str, ...]

    @property
    def column(self) -> str:
        return self.path[0]

    def expression(self) -> pl.Expr:
        """Return the polars expression that reads it."""
        made = pl.col(self.path[0])
        for name in self.path[1:]:
            made = made.struct.field(name)
        return made

    def values(self, frame: pl.DataFrame) -> pl.Series:
        """Return its values in the rows of a frame."""
        if len(self.path) == 1:
            return frame.get_column(self.path[0])
        return frame.select(self.expression().alias("value")).to_series()

    def __str__(self) -> str:
        return ".".join(self.path)


@lru_cache(maxsize=10_000)
def shared_source(*path: str) -> Source:
    """Return the source of a path, the same object for all conditions."""
    return Source(path)


class TextAtom(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True, tag="text"):
    """The column contains the text. With a fold, letters are compared without regard to case.

    ``first``, ``last``: the column begins, or ends, with it.
    """

    source: Source
    text: str
    fold: Fold = Fold.EXACT
    first: bool = False
    last: bool = False

    def __str__(self) -> str:
        case = "" if self.fold is Fold.EXACT else " in any case"
        verb = {(False, False): "contains", (True, False): "begins with", (False, True): "ends with"}
        return f"{self.source} {verb.get((self.first, self.last), 'is')} {self.text!r}{case}"


class ValueAtom(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True, tag="value"):
    """The column of texts or whole numbers has exactly the value."""

    source: Source
    value: str | int

    def __str__(self) -> str:
        return f"{self.source} is {self.value!r}"


Atom = TextAtom | ValueAtom


class Atoms(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True, tag="any"):
    """At least one of these is met."""

    atoms: frozenset[Atom]


class Choice(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True, tag="choice"):
    """All of these needs are met (AND): the atoms of any one of them are enough as a trigger."""

    needs: tuple[Need, ...]


class Union(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True, tag="union"):
    """At least one of these needs is met (OR): a trigger must have atoms of each of them."""

    needs: tuple[Need, ...]


Need = Atoms | Choice | Union


def choice(needs: list[Need]) -> Need | None:
    """Return the need of several conditions that must all be true."""
    if not needs:
        return None
    return needs[0] if len(needs) == 1 else Choice(tuple(needs))


def cheapest(need: Need, cost: Callable[[Atom], float]) -> tuple[float, frozenset[Atom]]:
    """Return the cheapest atoms of a need, and their total cost."""
    if type(need) is Atoms:
        return sum(map(cost, need.atoms)), need.atoms
    parts = [cheapest(part, cost) for part in need.needs]  # type: ignore[union-attr]  # faster than isinstance
    if type(need) is Choice:
        return min(parts, key=itemgetter(0))
    return sum(part[0] for part in parts), frozenset().union(*(part[1] for part in parts))


def all_atoms(need: Need) -> frozenset[Atom]:
    """Return all atoms of a need: every trigger consists of some of them."""
    found: set[Atom] = set()
    add_atoms(need, found)
    return frozenset(found)


def add_atoms(need: Need, found: set[Atom]) -> None:
    """Add all atoms of a need to ``found``."""
    if type(need) is Atoms:
        found |= need.atoms
    else:
        for part in need.needs:  # type: ignore[union-attr]
            add_atoms(part, found)
