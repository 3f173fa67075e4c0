"""What correlations need of rules that are replaced while the job runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace_rules.model import Rejection
from headrace_rules.sigma import id_of

from headrace_detection.correlations import RULE, Correlation, digest_of

_AT_A_START = "correlations are read when the job starts: start it anew"


@dataclass(frozen=True, slots=True)
class CorrelationsReliance:
    """The correlations of a running job, for headrace-rules: the rules that they name stay, and changed correlations are told."""

    correlations: Sequence[Correlation]

    def rule_ids(self) -> Mapping[str, str]:
        named: dict[str, list[str]] = {}
        for one in self.correlations:
            for rule in one.rules if one.kind != RULE else ():
                named.setdefault(rule, []).append(repr(one.id))
        return {rule: f"correlation {', '.join(names)}" for rule, names in named.items()}

    def entry_ids(self) -> Collection[str]:
        return {one.id for one in self.correlations if one.kind != RULE}

    def changed(self, entries: Sequence[tuple[Mapping[str, Any], str]], of_others: Collection[str]) -> list[Rejection]:
        """Return the correlations of files that are not those of the job. Other directories say nothing of them."""
        own = {one.id: one for one in self.correlations if one.kind != RULE}
        directories = {_directory(one.place) for one in own.values()}
        found = {id_of(entry): (entry, place) for entry, place in entries if _directory(place) in directories}
        if not found:
            return []
        told = []
        for name, (entry, place) in found.items():
            if name in of_others:
                continue
            if name not in own:
                told.append(Rejection(name, f"the correlation is new, and not in use; {_AT_A_START}", place))
            elif own[name].digest != digest_of(entry):
                told.append(Rejection(name, f"the correlation has changed, and stays as it was; {_AT_A_START}", place))
        told += [
            Rejection(name, f"the correlation is in no file any more, and stays in use; {_AT_A_START}", one.place)
            for name, one in own.items()
            if name not in found
        ]
        return told


def _directory(place: str) -> str:
    return str(Path(place.rpartition(", ")[0]).parent)
