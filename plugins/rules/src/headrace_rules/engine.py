"""The engine evaluates many conditions on the batches of one stream.

Its matches are the same as if every condition were evaluated on every row. A batch is scanned for the triggers of all
conditions, and each condition is verified where its trigger was found. The triggers are chosen from the first rows, and
again if they are found much more often than expected. The choice changes the cost, never the results.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.schema import Schema
from headrace.runtime.batch_trials import may_be_the_rows_fault
from numpy.typing import NDArray

from headrace_rules.background import behind_batches, without_collections
from headrace_rules.coded_columns import CodedColumns, ColumnHabits
from headrace_rules.disk_cache import DatabaseCache
from headrace_rules.prepared import Preparer
from headrace_rules.trigger_plan import TriggerPlan, measured_cost, plan_triggers
from headrace_rules.verification import Matches, VerdictCache, Verifier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine works; none of it changes its results."""

    #: "auto", "hyperscan" or "polars".
    scanner: str = "auto"
    #: Rows from which triggers are chosen.
    sample_rows: int = 3_000
    #: Rows between two checks whether triggers are found too often; doubled whenever triggers are chosen again.
    drift_rows: int = 100_000
    #: Whether a separate thread chooses triggers again and prepares new rules; otherwise batches wait for that.
    background: bool = True
    #: Results of conditions with user functions that are kept; 0: none.
    verdict_cache_entries: int = 0
    #: Whether compiled databases, and what conditions need, are kept on disk.
    cache: bool = True


@dataclass(slots=True)
class EngineFigures:
    """Counters of one engine. Arrays have one number per condition; seconds are CPU seconds."""

    rows: int
    candidates: NDArray[np.int64]
    matches: NDArray[np.int64]
    scan_seconds: float = 0.0
    verify_seconds: float = 0.0
    plans: int = 0


class RuleEngine:
    """Evaluates conditions on frames. Several threads may call ``evaluate``; it works for one of them at a time.

    The constructor raises ExpressionError if a condition is wrong.
    """

    def __init__(
        self,
        texts: Sequence[str],
        schema: Schema,
        functions: Mapping[str, Any] | None = None,
        options: EngineOptions | None = None,
        preparer: Preparer | None = None,
    ) -> None:
        self.options = options or EngineOptions()
        self._preparer = preparer or Preparer(schema, functions if functions is not None else {})
        self._preparer.prepare_many(texts)
        self.conditions = [self._preparer.prepare(text) for text in texts]
        self._cache = DatabaseCache() if self.options.cache else None
        self._plan: TriggerPlan | None = None
        #: Triggers and verifier that are used from the next batch on.
        self._next: tuple[TriggerPlan, Verifier] | None = None
        self._planning: threading.Thread | None = None
        self._lock = threading.Lock()
        entries = self.options.verdict_cache_entries
        self.verdict_cache = VerdictCache(entries) if entries else None
        self._verifier: Verifier | None = None
        self._habits = ColumnHabits()
        count = len(self.conditions)
        self.figures = EngineFigures(0, np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64))
        self._looked_at_rows = 0
        self._pairs_since = 0
        self._rows_since = 0
        self._drift_rows = self.options.drift_rows

    @property
    def plan(self) -> TriggerPlan | None:
        """The triggers in use; None before the first rows have come."""
        return self._plan

    @property
    def verifier(self) -> Verifier | None:
        """The verifier for these triggers; None before the first rows have come."""
        return self._verifier

    def evaluate(self, frame: pl.DataFrame) -> Matches:
        """Return the matches of all conditions in the frame's rows. The frame has at least the columns that they read."""
        with self._lock:
            plan, verifier = self._current_plan(frame)
            begun = time.thread_time()
            everywhere = plan.everywhere
            coded = CodedColumns(frame, self._habits)
            try:
                candidates = plan.candidates(frame, len(self.conditions), coded)
            except BaseException as error:
                if not may_be_the_rows_fault(error):
                    raise
                # The search for triggers fails on values of this batch: each condition is evaluated on every row.
                everywhere, candidates = np.arange(len(self.conditions)), np.zeros(0, dtype=np.int64)
            scanned = time.thread_time()
            found = len(candidates)
            if len(everywhere) and len(everywhere) < len(self.conditions):
                more_candidates, everywhere = verifier.candidates_by_values(frame, coded, everywhere)
                if len(more_candidates):
                    candidates = np.sort(np.concatenate([candidates, more_candidates]))
            matches = verifier.verify(frame, candidates, coded)
            if len(everywhere):
                more = verifier.verify_everywhere(frame, everywhere)
                pairs = np.sort(np.concatenate([matches.pairs, more.pairs]))
                matches = Matches(pairs, matches.rules, matches.failures + more.failures)
            verified = time.thread_time()
            self._count(frame.height, candidates, found, matches, scanned - begun, verified - scanned)
            self._look_for_drift(frame, plan)
        return matches

    def choose_triggers(self, sample: pl.DataFrame) -> TriggerPlan:
        """Return the triggers that cost least in rows like these."""
        cache, scanner = self._cache, self.options.scanner
        with without_collections():
            cost = measured_cost(self.conditions, sample, cache=cache, engine=scanner)
            return plan_triggers(self.conditions, cost, sampled=True, cache=cache, engine=scanner)

    def use_triggers(self, plan: TriggerPlan | None = None) -> None:
        """Use these triggers from the next batch on. Default: triggers that are chosen by their length, without a sample."""
        cache, scanner = self._cache, self.options.scanner
        with without_collections():
            chosen = plan or plan_triggers(self.conditions, cache=cache, engine=scanner)
        self._next = chosen, Verifier(self.conditions, chosen.atoms, self._preparer, self.verdict_cache)

    def settle(self) -> None:
        """Wait until a choice of triggers that is under way has ended. They are used from the next batch on. For tests."""
        planning = self._planning
        if planning is not None:
            planning.join()

    # ------------------------------------------------------------------------------------------------ private

    def _current_plan(self, frame: pl.DataFrame) -> tuple[TriggerPlan, Verifier]:
        if self._next is None and self._plan is None and frame.height:
            self.use_triggers(self.choose_triggers(sampled(frame, self.options.sample_rows)))
        if self._next is not None:
            self._plan, self._verifier = self._next
            self._next = None
            self._rows_since = self._pairs_since = 0
            self.figures.plans += 1
        if self._plan is None or self._verifier is None:  # no row has come yet
            plan = plan_triggers(self.conditions, engine=self.options.scanner)
            return plan, Verifier(self.conditions, plan.atoms, self._preparer)
        return self._plan, self._verifier

    def _count(self, rows: int, candidates: Any, found: int, matches: Matches, scan: float, verify: float) -> None:
        count = len(self.conditions)
        figures = self.figures
        figures.rows += rows
        figures.scan_seconds += scan
        figures.verify_seconds += verify
        if len(candidates):
            figures.candidates += np.bincount(candidates % count, minlength=count)
        if len(matches.pairs):
            figures.matches += np.bincount(matches.rule_numbers, minlength=count)
        self._rows_since += rows
        self._pairs_since += found

    def _look_for_drift(self, frame: pl.DataFrame, plan: TriggerPlan) -> None:
        if self._rows_since < self._drift_rows or self._planning is not None or plan.expected_pairs is None:
            return
        rate = self._pairs_since / self._rows_since
        self._rows_since = self._pairs_since = 0
        # A few candidates cost little, even if they are many times more than were expected.
        if rate < 2 * plan.expected_pairs + 0.05:
            return
        logger.info("rules: %.2f candidates per row, but %.2f were expected: triggers are chosen again", rate,
                    plan.expected_pairs)  # fmt: skip
        self._drift_rows *= 2
        sample = sampled(frame, self.options.sample_rows)
        if not self.options.background:
            self.use_triggers(self.choose_triggers(sample))
            return
        self._planning = threading.Thread(target=self._plan_anew, args=(sample,), name="headrace rules", daemon=True)
        self._planning.start()

    def _plan_anew(self, sample: pl.DataFrame) -> None:
        try:
            with behind_batches():
                self.use_triggers(self.choose_triggers(sample))
        except Exception:
            # The results are still right with the triggers in use; only the cost is higher.
            logger.exception("rules: triggers could not be chosen again")
        finally:
            self._planning = None


def sampled(frame: pl.DataFrame, rows: int) -> pl.DataFrame:
    """Return at most so many rows of a frame, at even distances."""
    if frame.height <= rows:
        return frame
    return frame.gather_every(frame.height // rows).head(rows)
