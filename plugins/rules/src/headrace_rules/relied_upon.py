"""Verbs behind ``rules`` that name rules by their ids, such as ``correlate``: a replacement of the rules must keep these ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from headrace_rules.model import Rejection, Rule, RuleSet

#: An entry of a file that is no rule, with its place.
Entries = Sequence[tuple[Mapping[str, Any], str]]


class Reliance(Protocol):
    """What one verb relies on. It is pickled with the plan."""

    def rule_ids(self) -> Mapping[str, str]:
        """Return the ids of rules that the verb needs, each with the name of what needs it, for messages."""

    def entry_ids(self) -> Collection[str]:
        """Return the ids of the entries that the verb has read itself, such as correlations."""

    def changed(self, entries: Entries, of_others: Collection[str]) -> list[Rejection]:
        """Return what in the files is not as in the running job, and would have no effect.

        ``entries``: those of the files that are no rules. ``of_others``: ids that other verbs have read.
        """


@runtime_checkable
class ReliesOnRules(Protocol):
    """A spec of a verb that reads ids of rules."""

    def reliance(self) -> Reliance:
        """Return the ids on which the verb relies. Called when a job is started."""


@dataclass(frozen=True, slots=True)
class Reliances:
    """What all verbs behind one ``rules`` rely on."""

    verbs: tuple[Reliance, ...] = ()

    def kept(self, before: Iterable[Rule], taken: Iterable[Rule]) -> tuple[list[Rule], list[Rejection]]:
        """Return the old rules that must stay because a verb refers to them, each with a message."""
        known = {rule.id for rule in taken}
        needed: dict[str, str] = {}
        for verb in self.verbs:
            needed.update(verb.rule_ids())
        rules = [rule for rule in before if rule.id in needed and rule.id not in known]
        return rules, [
            Rejection(rule.id, f"{needed[rule.id]} names it, so it stays in use until the job starts anew", rule.place)
            for rule in rules
        ]

    def changed(self, entries: Entries) -> list[Rejection]:
        """Return a message about entries that are not rules; an empty one if there are none."""
        if not entries:
            return []
        told: dict[tuple[str, str], Rejection] = {}
        for verb in self.verbs:
            of_others = {name for other in self.verbs if other is not verb for name in other.entry_ids()}
            for one in verb.changed(entries, of_others):
                told.setdefault((one.id, one.place), one)
        return list(told.values())

    def missing(self, first: RuleSet, newest: RuleSet) -> list[Rule]:
        """Return the rules of the job's code that a verb names and the newest version does not have."""
        return self.kept(first, newest)[0]


NO_RELIANCES = Reliances()
