"""Verbs that evaluate conditions on the same rows share one engine: the rows are scanned once for all of them.

A group has one member per verb. In each process that runs a part of the job it has one *run*, which the lanes of all queues
use.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import OFFSET, Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.clock import Clock, SystemClock
from numpy.typing import NDArray

from headrace_rules.background import behind_batches
from headrace_rules.condition_cache import ConditionCache
from headrace_rules.engine import EngineOptions, RuleEngine
from headrace_rules.journal import FIRST
from headrace_rules.loading import RulesInput
from headrace_rules.model import Rule, RuleSet
from headrace_rules.prepared import Preparer
from headrace_rules.relied_upon import NO_RELIANCES, Reliances
from headrace_rules.sigma_fields import NO_OPTIONS, SigmaOptions
from headrace_rules.verification import Matches, RuleFailure
from headrace_rules.versions import MemberVersions

logger = logging.getLogger(__name__)
Integers = NDArray[np.int64]
#: Engines kept per run: the one in use, the one that replaces it, and one for records that are read again.
_ENGINES_MAX = 3
#: The preparer is replaced when it knows so many values of a row that the rules in use do not read, and more than they read.
_SLOTS_SPARE = 50
#: A batch that comes so long after the one before waits for new rules. New rules are prepared only when a batch comes.
#: Without the wait, records of a quiet stream would be tested against rules that were replaced long ago.
_QUIET_SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class Member:
    """A verb of a group: its rules (a ``where`` is one rule), and the directory of their versions if they can be replaced."""

    name: str
    rules: RuleSet
    #: The directory of the journal; None: the rules cannot be replaced.
    journal: str | None = None
    watched: RulesInput | None = None
    reload_interval: timedelta | None = None
    #: When the job was started with these rules, as the audit file has it; empty for a verb that is not in a job.
    since: str = ""
    #: How Sigma rules are read, in files that are watched.
    sigma: SigmaOptions = NO_OPTIONS
    #: What verbs behind need of the rules.
    reliances: Reliances = NO_RELIANCES

    @classmethod
    def of_condition(cls, name: str, text: str) -> Member:
        return cls(name, RuleSet([Rule("where", text)]))

    def versions(self, preparer: Preparer, clock: Clock) -> MemberVersions | None:
        """Return a new object for its versions in this process; None if its rules cannot be replaced."""
        if self.journal is None:
            return None
        return MemberVersions(self.rules, self.journal, preparer, watched=self.watched,
                              reload_interval=self.reload_interval, clock=clock, since=self.since,
                              sigma=self.sigma, reliances=self.reliances)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows that were tested against the same versions of the rules, and the matches and failures of one member."""

    frame: pl.DataFrame
    rules: RuleSet
    #: Ordered by row, then by rule.
    rows: Integers
    rule_numbers: Integers
    failures: Sequence[RuleFailure]


#: (offset, the version of each member's rules that is used from there on)
_Cut = tuple[int, tuple[int, ...]]
#: Names and types.
_Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Evaluated:
    frame: pl.DataFrame
    rule_sets: tuple[RuleSet, ...]
    matches: Matches

    def of_member(self, place: int) -> Segment:
        begin = sum(map(len, self.rule_sets[:place]))
        rules = self.rule_sets[place]
        end = begin + len(rules)
        numbers = self.matches.rule_numbers
        own = (numbers >= begin) & (numbers < end)
        failures = [(row, rule - begin, error) for row, rule, error in self.matches.failures if begin <= rule < end]
        return Segment(self.frame, rules, self.matches.rows[own], numbers[own] - begin, failures)


class RuleGroup:
    """The members that share an engine, with their functions and options. It is pickled with the plan.

    ``like``: a group with the same functions. The conditions that it has prepared in this process are used again.
    """

    def __init__(
        self,
        members: Sequence[Member],
        functions: Mapping[str, Any],
        options: EngineOptions,
        like: RuleGroup | None = None,
    ) -> None:
        self.members = list(members)
        self.functions = functions
        self.options = options
        self._follows = False
        self._preparers: dict[_Columns, Preparer] = {} if like is None else like._preparers
        self._runs: dict[_Columns, GroupRun] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # New rules may call any function of the job. The pickle of a catalogue has only functions that were looked up in it.
        for name in self.functions:
            self.functions[name]
        return {"members": self.members, "functions": self.functions, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def follow(self) -> None:
        """Leave it to another process from which records on new versions are used. Called before the first batch."""
        with self._lock:
            self._follows = True
            for run in self._runs.values():  # made when the plan was checked
                run.follow()

    def run_for(self, schema: Schema) -> GroupRun:
        """Return this process's run for rows of these columns. There is one run per set of columns."""
        key = tuple((name, str(kind)) for name, kind in schema.items())
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                preparer = self._preparers.setdefault(key, new_preparer(schema, self))
                run = self._runs[key] = GroupRun(self, schema, preparer=preparer)
                if self._follows:
                    run.follow()
            return run


@dataclass
class _Memory(threading.local):
    """The last results of one thread: the members ask for the results of the same rows one after the other."""

    frame: pl.DataFrame | None = None
    evaluated: list[_Evaluated] = field(default_factory=list)
    asked: int = 0
    #: The versions for the next batch, if a scan before parsing has already determined them.
    cuts: list[_Cut] | None = None


class GroupRun:
    """Evaluates the rules of all members. Each combination of their versions has its own engine."""

    def __init__(
        self, group: RuleGroup, schema: Schema, clock: Clock | None = None, preparer: Preparer | None = None
    ) -> None:
        self._members = group.members
        self._options = group.options
        self._clock = clock or SystemClock()
        self.preparer = preparer or new_preparer(schema, group)
        self._versions = [member.versions(self.preparer, self._clock) for member in group.members]
        self._engines: OrderedDict[tuple[int, ...], RuleEngine] = OrderedDict()
        self._lock = threading.RLock()
        self._memory = _Memory()
        self._building: threading.Thread | None = None
        self._sample: pl.DataFrame | None = None
        self._looked_seconds = self._clock.monotonic()

    def segments(self, place: int, batch: Batch) -> list[Segment]:
        """Return the matches of the member at ``place``, for consecutive parts of the batch's rows."""
        memory = self._memory
        if memory.frame is not batch.frame:
            memory.evaluated = self._evaluate(batch)
            memory.frame = batch.frame
            memory.asked = 0
        found = [one.of_member(place) for one in memory.evaluated]
        memory.asked += 1
        if memory.asked >= len(self._members):  # no member asks for these rows again: free them
            memory.frame, memory.evaluated = None, []
        return found

    def engine(self) -> RuleEngine:
        """Return the engine that was made last; if there is none, make that of the first versions."""
        with self._lock:
            if not self._engines:
                return self._engine_for(tuple(FIRST for _ in self._members))
            return next(reversed(self._engines.values()))

    def settle(self) -> None:
        """Wait until a thread that is making an engine has ended."""
        building = self._building
        if building is not None:
            building.join()

    def follow(self) -> None:
        """Leave it to another process from which records on new versions are used."""
        for versions in self._versions:
            if versions is not None:
                versions.follows = True

    def decide(self, queue: Queue, first: int, last: int) -> None:
        """Settle which versions are used for the records from ``first`` to ``last``, which another process may evaluate."""
        self._cuts(queue, first, last)

    # ------------------------------------------------------------------------------------------------ private

    def only_engine(self, queue: Queue, offsets: Integers) -> RuleEngine | None:
        """Return the engine for the records with these offsets, which are evaluated next in this thread.

        None if several versions of the rules are used for them.
        """
        cuts = self._cuts(queue, int(offsets[0]), int(offsets[-1]))
        self._memory.cuts = cuts
        return self._engine_for(cuts[0][1]) if len(cuts) == 1 else None

    def _evaluate(self, batch: Batch) -> list[_Evaluated]:
        parts = []
        for frame, numbers in self._parts(batch):
            engine = self._engine_for(numbers)
            rule_sets = tuple(self._rules(place, number) for place, number in enumerate(numbers))
            parts.append(_Evaluated(frame, rule_sets, engine.evaluate(frame)))
        return parts

    def _parts(self, batch: Batch) -> list[tuple[pl.DataFrame, tuple[int, ...]]]:
        """Return the batch in parts, with the versions that are used for each part."""
        frame = batch.frame
        cuts, self._memory.cuts = self._memory.cuts, None
        if not frame.height or OFFSET not in frame.columns:
            return [(frame, tuple(FIRST for _ in self._members))]
        self._sample = frame
        if cuts is None:
            cuts = self._cuts(batch.queue, int(frame[OFFSET][0]), int(frame[OFFSET][-1]))
        if len(cuts) == 1:
            return [(frame, cuts[0][1])]
        places = [int(place) for place in np.searchsorted(frame[OFFSET].to_numpy(), [border for border, _ in cuts])]
        ends = [*places[1:], frame.height]
        return [
            (frame[begin:end], numbers)
            for (_, numbers), begin, end in zip(cuts, places, ends, strict=True)
            if begin < end
        ]

    def _cuts(self, queue: Queue, first: int, last: int) -> list[_Cut]:
        """Return the offsets, and the versions that are used from each on, for the records from ``first`` to ``last``."""
        if not any(self._versions):
            return [(first, tuple(FIRST for _ in self._members))]
        waits = self._waits()
        with self._lock:
            self._prepare_newest(waits)
            histories = [
                [(first, FIRST)] if versions is None else versions.history(queue.id, first)
                for versions in self._versions
            ]
        borders = sorted({max(offset, first) for history in histories for offset, _ in history if offset <= last})
        return [(border, tuple(_version_at(history, border) for history in histories)) for border in borders]

    def _waits(self) -> bool:
        """Return whether this batch must wait for new rules: if no batch came for 5 s, or if there are no background threads."""
        now = self._clock.monotonic()
        before, self._looked_seconds = self._looked_seconds, now
        if now - before >= _QUIET_SECONDS:
            self.settle()
            return True
        return not self._options.background

    def _prepare_newest(self, waits: bool) -> None:
        """Use new versions if their engine is ready. Else start to make it in a thread, or with ``waits`` make it now."""
        waiting = [versions.look(waits=waits) for versions in self._versions if versions is not None]
        if not any(waiting):
            return
        newest = self._newest()
        if waits and self._engines and newest not in self._engines:
            self._build(newest)
        ready = newest if not self._engines else self._newest_ready()
        for versions, number in zip(self._versions, ready, strict=True):
            if versions is not None:
                versions.admit(number)
        if ready != newest and not waits and self._building is None:
            self._building = threading.Thread(
                target=self._build_behind, args=(newest,), name="headrace rules", daemon=True
            )
            self._building.start()

    def _newest_ready(self) -> tuple[int, ...]:
        """Return the newest versions that have an engine and are not older than those in use; else those in use."""
        used = tuple(FIRST if versions is None else versions.admitted for versions in self._versions)
        later = [
            numbers for numbers in self._engines if all(one >= other for one, other in zip(numbers, used, strict=True))
        ]
        return max(later, key=sum, default=used)

    def _newest(self) -> tuple[int, ...]:
        return tuple(FIRST if versions is None else versions.newest for versions in self._versions)

    def _build_behind(self, numbers: tuple[int, ...]) -> None:
        try:
            with behind_batches():
                self._build(numbers, politely=True)
        finally:
            self._building = None

    def _build(self, numbers: tuple[int, ...], *, politely: bool = False) -> None:
        """Make the engine of new versions, while the engine of the old ones is still in use.

        ``politely``: called in a separate thread, which sleeps now and then so that batches get the interpreter's lock.
        """
        try:
            self._renew_preparer()
            if politely:
                self._prepare_politely(numbers)
            engine = self._made(numbers)
            if self._sample is not None:
                engine.use_triggers(engine.choose_triggers(self._sample.head(self._options.sample_rows)))
            with self._lock:
                self._keep(numbers, engine)
        except Exception:
            # The rules in use stay; the next batch tries again.
            logger.exception("rules: versions %s could not be prepared", numbers)
            if not self._options.background:
                raise

    def _renew_preparer(self) -> None:
        """Use a new preparer if the one in use computes many values per row that only replaced rules needed."""
        before = self.preparer
        in_use = Preparer.slots_of(self.engine().conditions)
        if len(before.slots.expressions) > in_use + max(in_use, _SLOTS_SPARE):
            self.preparer = Preparer(before.schema, before.functions, stored=before.stored)
            for versions in self._versions:
                if versions is not None:
                    versions.preparer = self.preparer

    def _prepare_politely(self, numbers: tuple[int, ...]) -> None:
        """Parse the rules one by one with pauses, so that the threads that process batches get the interpreter's lock."""
        for place, number in enumerate(numbers):
            self.preparer.prepare_many([rule.expression for rule in self._rules(place, number)])

    def _engine_for(self, numbers: tuple[int, ...]) -> RuleEngine:
        with self._lock:
            engine = self._engines.get(numbers)
            if engine is None:
                engine = self._made(numbers)
                self._keep(numbers, engine)
            return engine

    def _made(self, numbers: tuple[int, ...]) -> RuleEngine:
        texts = [rule.expression for place, number in enumerate(numbers) for rule in self._rules(place, number)]
        return RuleEngine(texts, self.preparer.schema, self.preparer.functions, self._options, self.preparer)

    def _keep(self, numbers: tuple[int, ...], engine: RuleEngine) -> None:
        self._engines[numbers] = engine
        while len(self._engines) > _ENGINES_MAX:
            self._engines.popitem(last=False)
        self.preparer.forget_others(one.text for kept in self._engines.values() for one in kept.conditions)

    def _rules(self, place: int, number: int) -> RuleSet:
        versions = self._versions[place]
        return self._members[place].rules if versions is None else versions.rules(number)


def new_preparer(schema: Schema, group: RuleGroup) -> Preparer:
    """Return a preparer for rows of these columns, with the functions and options of a group."""
    return Preparer(schema, group.functions, stored=ConditionCache() if group.options.cache else None)


def _version_at(history: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the version that is used at an offset: the newest one whose switch is at or before it."""
    return max(version for begin, version in history if begin <= offset)
