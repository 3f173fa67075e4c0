"""The versions of a verb's rules in one process: which version is used for which records, and updates of the rules."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import HeadraceError

from headrace_rules.background import behind_batches
from headrace_rules.journal import FIRST, RuleJournal
from headrace_rules.loading import Loaded, RulesInput, check_rules, load
from headrace_rules.model import Rejection, Rule, RulesError, RuleSet
from headrace_rules.prepared import Preparer
from headrace_rules.relied_upon import NO_RELIANCES, Reliances
from headrace_rules.sigma_fields import SigmaOptions

logger = logging.getLogger(__name__)
_BEFORE_ALL = -(2**63)


class MemberVersions:
    """The versions of one verb's rules. ``look``, ``admit`` and ``history`` are called under the lock of the run.

    ``watched``: the rules' files. They are checked for changes once per ``reload_interval``, when a batch comes; the rules
    are replaced if files have changed. ``since``: when the job was started with these rules. ``sigma``: how
    Sigma rules are read. ``reliances``: what verbs behind need.
    """

    def __init__(
        self,
        rules: RuleSet,
        directory: str,
        preparer: Preparer,
        *,
        watched: RulesInput | None = None,
        reload_interval: timedelta | None = None,
        clock: Clock | None = None,
        since: str = "",
        sigma: SigmaOptions | None = None,
        reliances: Reliances = NO_RELIANCES,
    ) -> None:
        #: Whether another process looks at the files and decides where queues switch: then only what it has recorded counts here.
        self.follows = False
        self._first = rules
        self._since = since
        self._sigma = sigma
        self._reliances = reliances
        self.preparer = preparer
        self._watched = watched
        self._interval_seconds = None if reload_interval is None else reload_interval.total_seconds()
        self._clock = clock or SystemClock()
        self.journal = RuleJournal(directory)
        self._reloading: threading.Thread | None = None
        self._stamp: tuple[int, int] | None = None
        self.newest = FIRST
        #: The newest version that this process uses.
        self.admitted = FIRST
        self._read: dict[int, RuleSet] = {}
        self._read_lock = threading.Lock()
        self._histories: dict[str, list[tuple[int, int]]] = {}
        self._looked_seconds = self._clock.monotonic()
        self._seen_files = None if watched is None else signature(watched)

    def look(self, *, waits: bool) -> bool:
        """Check for changed files and new versions. Return whether there is a version newer than the one in use.

        Called for every batch. ``waits``: files that have changed are read and checked before it returns.
        """
        self._look_at_files(waits)
        stamp = self.journal.stamp()
        if stamp != self._stamp:
            if self._stamp is None and stamp[0]:
                # The job has been restarted: if the rules in its code have changed since the last start, they become a new version.
                self._begin_anew()
                stamp = self.journal.stamp()
            self._stamp = stamp
            self.newest = max(self.journal.latest(), FIRST)
            self._histories.clear()  # another process may have switched queues
        return self.newest > self.admitted

    def _begin_anew(self) -> None:
        self.journal.begin(self._first, at=self._since or now_text(self._clock))
        newest = self.journal.read(self.journal.latest()).rules
        missing = self._reliances.missing(self._first, newest)
        if missing:
            # They were taken away while no verb named them.
            self.journal.add(RuleSet([*newest, *missing]), who="the job", at=now_text(self._clock))

    def admit(self, number: int) -> None:
        """Use a version in each queue from its next batch on."""
        self.admitted = max(self.admitted, number)

    def rules(self, number: int) -> RuleSet:
        """Return the rules of a version. Called by batches and by the thread that prepares a new version."""
        with self._read_lock:
            found = self._read.get(number)
        if found is None:
            # Reading pauses for the sake of batches, so they must not wait for it. Two threads may read the same.
            found = self._first if self.journal.latest() == 0 else self.journal.read(number).rules
            with self._read_lock:
                self._read[number] = found
                for old in sorted(self._read)[:-4]:
                    del self._read[old]
        return found

    def history(self, queue: str, first: int) -> list[tuple[int, int]]:
        """Return (offset, version) of the switches of a queue, at least one of them at or before offset ``first``.

        If the queue has not yet switched to the admitted version, the switch is recorded here, at ``first``.
        """
        if self.follows:  # not kept: a switch that was recorded a moment ago may not show in the time of the directory
            return [(_BEFORE_ALL, FIRST), *self.journal.switches(queue)]
        history = self._histories.get(queue)
        if history is None:
            history = self._histories[queue] = self.journal.switches(queue)
        if self.admitted > FIRST and (not history or history[-1][1] < self.admitted):
            at = now_text(self._clock)
            offset = self.journal.switch(self.admitted, queue, first, at=at)
            history.append((offset, self.admitted))
            logger.info("rules: version %d is used in %s from offset %d", self.admitted, queue, offset)
        return [(_BEFORE_ALL, FIRST), *history]

    def _look_at_files(self, waits: bool) -> None:
        if self._watched is None or self._interval_seconds is None or self.follows:
            return
        now = self._clock.monotonic()
        if now - self._looked_seconds < self._interval_seconds:
            return
        self._looked_seconds = now
        if self._reloading is not None and self._reloading.is_alive():
            if not waits:
                return
            self._reloading.join()
        seen = signature(self._watched)
        if seen == self._seen_files:
            return
        self._seen_files = seen
        if waits:
            self._reload()
        else:
            self._reloading = threading.Thread(target=self._reload, name="headrace rules", daemon=True)
            self._reloading.start()

    def _reload(self) -> None:
        assert self._watched is not None
        try:
            with behind_batches():
                update(self.journal, self._first, load(self._watched, self._sigma), self.preparer, who=f"{whoami()} (files)",
                       at=now_text(self._clock), since=self._since, reliances=self._reliances)  # fmt: skip
        except HeadraceError as error:
            logger.warning("rules: the files cannot be read, the present rules stay in use: %s", error)
        except Exception:
            # The rules in use stay; the files are read again when they change the next time.
            logger.exception("rules: changed files could not be loaded")


@dataclass(frozen=True, slots=True)
class RulesUpdate:
    """The result of giving rules to a running job; ``JobHandle.update_rules`` returns it.

    ``version`` and ``rules`` are the newest version: if the rules have not changed, it is the one from before. ``rejected``
    has the rules that are wrong, and what else of the new rules does not count, with the reason.
    """

    version: int
    rules: RuleSet
    rejected: tuple[Rejection, ...] = ()


def update(
    journal: RuleJournal,
    first: RuleSet,
    given: Loaded,
    preparer: Preparer,
    *,
    who: str,
    at: str,
    since: str = "",
    forget: bool = False,
    reliances: Reliances = NO_RELIANCES,
) -> RulesUpdate:
    """Add a version with the given rules, unless the newest version has the same.

    ``since`` is the time of the first version, the rules in the job's code; ``at`` is that of the new one. ``forget``: the
    preparer is used for updates only, and drops everything except these rules.

    If a rule is wrong and the version before has a rule with that id, the old rule stays. If a file is not valid YAML, or one
    of its rules has no usable id, all old rules of the file stay whose ids are not in the new rules. A rule that a verb behind
    names stays too, and is listed among the rejected. Raises RulesError when no rule is left.
    """
    good, wrong = check_rules(given.rules, preparer)
    rejections = [*given.rejections, *wrong]
    if journal.latest() == 0:
        journal.begin(first, at=since or at)
    before = journal.read(journal.latest()).rules
    rules = RuleSet([*good, *_kept(before, good, rejections)])
    if not rules:
        raise RulesError(rejections, total=given.total, hint="the present rules stay in use")
    relied_upon, told = reliances.kept(before, rules)
    rules = RuleSet([*rules, *relied_upon])
    rejections += [*told, *reliances.changed(given.correlations)]
    for one in rejections:
        logger.warning("rules: rejected: %s", one)
    made = journal.add(rules, who=who, at=at, rejected=rejections)
    if forget:
        preparer.forget_others(rule.expression for rule in made.rules)
    return RulesUpdate(made.number, made.rules, tuple(rejections))


def _kept(before: RuleSet, good: list[Rule], rejections: list[Rejection]) -> list[Rule]:
    """Return the old rules that stay because the rule or file that should replace them is wrong."""
    taken = {rule.id for rule in good}
    wrong_ids = {one.id for one in rejections if one.id}
    wrong_files = {one.place.rpartition(", ")[0] or one.place for one in rejections if not one.id and one.place}
    kept = []
    for rule in before:
        from_wrong_file = (rule.place.rpartition(", ")[0] or rule.place) in wrong_files if rule.place else False
        if rule.id not in taken and (rule.id in wrong_ids or from_wrong_file):
            kept.append(rule)
    return kept


def signature(source: RulesInput) -> Mapping[str, Any] | None:
    """Return time, size and inode of each file that rules are read from; None if there is no file or one cannot be read."""
    from headrace_rules.loading import files_of

    listed = [source] if isinstance(source, str | os.PathLike) else list(source)
    found: dict[str, Any] = {}
    try:
        for one in listed:
            if isinstance(one, str | os.PathLike):
                for path in files_of(one):
                    status = Path(path).stat()
                    found[str(path)] = (status.st_mtime_ns, status.st_size, status.st_ino)
    except (HeadraceError, OSError):
        return None
    return found


def whoami() -> str:
    """Return ``user@machine``, for the audit file."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def now_text(clock: Clock) -> str:
    """Return the time in the form of the audit file: ISO 8601, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(clock.now(), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
