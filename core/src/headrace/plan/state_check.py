"""Compares the definitions of a stored state with those of the job that wants to use it.

A backend calls ``check_definitions`` before anything runs. A shard has a ``StateFit``, which converts stored state to
the columns of the present definitions, version by version: every stored version says under which definitions it was
made.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import CheckpointError
from headrace.interfaces.state_definition import (
    DefinedState,
    Difference,
    Verdict,
    definitions_from_json,
    definitions_to_json,
    difference_table,
    differences,
    verdict_of,
)
from headrace.plan.graph import Node, OperatorNode, Plan, input_schema

if TYPE_CHECKING:
    from headrace.interfaces.operator import StatefulOperator

logger = logging.getLogger(__name__)


def check_definitions(plan: Plan, stored: Mapping[str, DefinedState] | None, *, place: str) -> frozenset[str]:
    """Compare a job with the definitions that are stored at a place; return the operators whose state must turn out to be empty.

    Called by backends when a job continues, before anything runs. ``stored`` None: the state was written before definitions were
    stored, which is warned of. Raises CheckpointError that names the verb and shows both definitions.
    """
    now = plan.state_definitions
    if stored is None:
        if now:
            logger.warning(
                "job %s: the state in %s was stored without definitions, by an older version: headrace cannot check that it "
                "fits the verbs of the job, and uses it as it is",
                plan.job_name,
                place,
            )
        return frozenset()
    for name in stored:
        if name not in now:
            raise _refused(
                plan,
                name,
                f"{place} has the state of {name!r} ({stored[name].state.verb}), which the job does not have any more",
            )
    must_be_empty = set()
    for name, defined in now.items():
        if name not in stored:
            _check_new(plan, name, defined, place)
            continue
        found = differences(stored[name], defined)
        _check(plan, name, defined, found, place)
        if any(each.verdict is Verdict.IF_EMPTY for each in found):
            must_be_empty.add(name)
    return frozenset(must_be_empty)


def lost_sources(plan: Plan, stored: Iterable[str]) -> frozenset[str]:
    """Return which of the sources that a checkpoint has positions of the job no longer has.

    Called by backends when a job continues, before anything runs; they drop the positions. Raises CheckpointError unless
    ``allow_changed_input`` says that it is meant: a source with another name would be read from its beginning.
    """
    lost = sorted(set(stored) - set(plan.sources))
    if not lost:
        return frozenset()
    named = f"a source {lost[0]!r}" if len(lost) == 1 else "sources " + ", ".join(map(repr, lost))
    if not plan.allow_changed_input:
        raise CheckpointError(
            f"the checkpoint knows {named}, which the job no longer has",
            job=plan.job_name,
            option="checkpoint",
            hint=f"name the source as before (name={lost[0]!r}); if you removed it on purpose, set allow_changed_input=True "
            "(--allow-changed-input) to continue without it; or start from the beginning with another checkpoint directory",
        )
    logger.warning("job %s: the job continues without %s, and its stored positions are deleted", plan.job_name, named)
    return frozenset(lost)


def _check_new(plan: Plan, name: str, defined: DefinedState, place: str) -> None:
    if not plan.allow_changed_input:
        raise _refused(
            plan,
            name,
            f"{place} has no state of {name!r} ({defined.state.verb}): it would start with empty state, although rows were read before",
            choice=True,
        )


def _check(plan: Plan, name: str, defined: DefinedState, found: list[Difference], place: str) -> None:
    """Raise CheckpointError where differences cannot be gone on with."""
    verdict = verdict_of(found)
    if verdict is Verdict.REFUSED:
        shown = [each for each in found if each.verdict is Verdict.REFUSED]
        raise _refused(
            plan, name, f"the state of {name!r} ({defined.state.verb}) in {place} was stored by another definition of it\n"
            + difference_table(shown),
        )  # fmt: skip
    if verdict is Verdict.INPUT and not plan.allow_changed_input:
        shown = [each for each in found if each.verdict is Verdict.INPUT]
        raise _refused(
            plan, name, f"what feeds {name!r} ({defined.state.verb}) has changed since its state in {place} was stored\n"
            + difference_table(shown), choice=True,
        )  # fmt: skip


def _refused(plan: Plan, name: str, message: str, *, choice: bool = False) -> CheckpointError:
    hint = (
        "use another checkpoint directory to begin anew, go back to the job as it was, or start from a savepoint in which the state "
        f"of {name!r} is dropped"
    )
    if choice:
        hint = (
            "if that is meant, allow_changed_input=True (--allow-changed-input) goes on with the state as it is; else "
            + hint
        )
    return CheckpointError(message, job=plan.job_name, plugin=name, option="checkpoint", hint=hint)


@dataclass
class StateFit:
    """How the stored versions of one shard's state fit the operators of now. Used by one thread.

    ``nodes``: the shard's stateful operators, by id.
    """

    plan: Plan
    nodes: Mapping[str, OperatorNode]
    #: Whether a version came without definitions.
    undefined: bool = False
    _now: Mapping[str, DefinedState] = field(default_factory=dict)
    _digest: str = ""
    _known: dict[str, Mapping[str, DefinedState]] = field(default_factory=dict)
    #: Definitions of this version, of the operators whose content must be converted.
    _others: Mapping[str, DefinedState] = field(default_factory=dict)
    #: Operators whose state must turn out to hold no rows, with how it differs.
    _must_be_empty: dict[str, list[Difference]] = field(default_factory=dict)
    #: How what feeds operators differs from what fed them when the newest version was stored.
    _inputs: dict[str, list[Difference]] = field(default_factory=dict)
    _told: bool = False
    #: The digest of the newest version.
    _newest: str = ""

    @classmethod
    def of(cls, plan: Plan, nodes: Mapping[str, Node]) -> StateFit:
        """Return the fit for the operators of one shard."""
        operators = {name: node for name, node in nodes.items() if isinstance(node, OperatorNode)}
        now = {name: plan.state_definitions[name] for name in operators if name in plan.state_definitions}
        text = json.dumps(definitions_to_json(now), sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cls(plan, operators, _now=now, _digest=digest, _known={digest: now})

    def header(self, *, whole: bool) -> dict[str, Any]:
        """Return the definitions for a version: complete in snapshots and the first time, otherwise a digest."""
        value: dict[str, Any] = {"digest": self._digest}
        if whole or not self._told:
            value |= definitions_to_json(self._now)
            self._told = True
        return value

    def is_own(self, value: Mapping[str, Any] | None) -> bool:
        """Return whether a version was made under the present definitions, or does not say under which."""
        return value is None or value.get("digest") == self._digest

    def begin_version(self, value: Mapping[str, Any] | None) -> None:
        """Check the definitions of a version before its content is loaded. Raises CheckpointError if the state cannot be used."""
        self._others = {}
        if value is None:
            self.undefined = True
            return
        digest = self._newest = str(value["digest"])
        if "operators" in value:
            self._known.setdefault(digest, definitions_from_json(value))
        self._inputs = {}
        if digest == self._digest:
            return
        if digest not in self._known:
            raise CheckpointError(
                "the definitions of a stored state are missing", hint="go back to an older checkpoint"
            )
        others = {}
        for name, stored in self._known[digest].items():
            if name not in self._now:
                raise _refused(
                    self.plan, name, f"the stored state has an operator {name!r}, which the job does not have any more"
                )
            found = differences(stored, self._now[name])
            # An older version may have been fed by something else, which was accepted then: the newest counts.
            self._inputs[name] = [each for each in found if each.verdict is Verdict.INPUT]
            found = [each for each in found if each.verdict is not Verdict.INPUT]
            _check(self.plan, name, self._now[name], found, "the shard")
            verdicts = {each.verdict for each in found}
            if verdicts & {Verdict.ADAPTED, Verdict.IF_EMPTY}:
                others[name] = stored
            if Verdict.IF_EMPTY in verdicts:
                self._must_be_empty[name] = found
        self._others = others

    def brought_over(self, name: str, content: bytes, *, part: bool = False) -> bytes:
        """Return the state that an operator stored in this version as it would have stored it under its present definition."""
        stored = self._others.get(name)
        if stored is None or not content:
            return content
        node: Any = self.nodes[name]
        schema = input_schema(node.input)
        made: bytes = node.spec.adapted(stored.state, self._now[name].state, schema, content, part=part)
        return made

    @property
    def digest(self) -> str:
        """A digest of the definitions of now."""
        return self._digest

    @property
    def has_others(self) -> bool:
        """Whether the newest version was made under other definitions."""
        return self._newest not in ("", self._digest)

    def check_inputs(self) -> None:
        """Compare the inputs of the operators with their inputs when the newest version was stored; only needed where
        nothing else would show a difference.

        Called when all versions have been applied. Raises CheckpointError.
        """
        for name, found in self._inputs.items():
            _check(self.plan, name, self._now[name], found, "the shard")

    def end(self, operators: Mapping[str, StatefulOperator]) -> None:
        """All versions have been applied. Raises CheckpointError when an operator has rows whose new values are not known."""
        for name, found in self._must_be_empty.items():
            rows = operators[name].state_rows()
            if rows:
                raise _refused(
                    self.plan, name,
                    f"{name!r} ({self._now[name].state.verb}) has aggregates now that its stored state does not have: they are not known "
                    f"for {rows:,} rows in it (keys, or open windows)\n" + difference_table(found),
                )  # fmt: skip
        self._must_be_empty.clear()
