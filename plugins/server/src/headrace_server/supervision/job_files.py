"""Turns the files of the jobs directory into versions of jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
from headrace.foundation.errors import JobError

from headrace_server.jobs_directory.scanning import FoundJob, Scanner, Unusable
from headrace_server.registry.records import Desired, JobRecord, VersionRecord, VersionState
from headrace_server.supervision.specifications import Services

logger = logging.getLogger(__name__)
#: A file that changes is taken when it has stayed the same for this many looks: an editor may not have written all of it.
_QUIET_LOOKS = 2
_REMOVED = "its file was removed"


class JobFiles:
    """The files of a jobs directory, for the one server that reads it. ``scan`` is called by its loop."""

    def __init__(self, services: Services, scanner: Scanner) -> None:
        self._services = services
        self._registry = services.registry
        self._scanner = scanner
        self._seen: dict[str, tuple[str, int]] = {}
        #: By job, the content that is its newest version: the registry need not be asked again.
        self._stored: dict[str, str] = {}
        #: New versions that this server has begun to roll out. Others are left from a server that was killed.
        self._offered: set[tuple[str, int]] = set()
        self._missed: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        #: Called before a version is stored, with the record and the files. What it raises keeps the version from being stored.
        self.new_version: Callable[[VersionRecord, Mapping[str, bytes]], None] = lambda record, files: None
        #: By job, the last submitted file and its author, until it has become a version.
        self._submitted: dict[str, tuple[bytes, str]] = {}

    @property
    def refused(self) -> Mapping[str, str]:
        """Files that cannot become a version, with the reason."""
        return dict(self._refused)

    def scan(
        self, is_watched: Callable[[JobRecord | None], bool], refuse_to_move: Callable[[JobRecord], None]
    ) -> dict[str, int]:
        """Store new versions, and record removed jobs. Returns the versions to roll out, by job.

        A job for which ``is_watched`` is true is left as it is. ``refuse_to_move`` raises JobError for a job that cannot change its
        unit now: that becomes its problem, until its file is another one or it can.
        """
        found, unusable = self._scanner.scan()
        known = {job.name: job for job in self._registry.jobs()}
        changes: dict[str, int] = {}
        for each in found:
            if is_watched(known.get(each.name)):
                continue  # a new version may still be under evaluation, and must not be rolled out twice
            before = self._refused.pop(each.name, None)
            try:
                number = self._taken(each, known.get(each.name), refuse_to_move)
            except JobError as error:  # the files of other jobs are taken nevertheless
                self._refused |= {} if before is None else {each.name: before}
                self._note_unusable(Unusable(name=each.name, reason=str(error)), known)
                continue
            if before is not None and each.name in known and known[each.name].problem == before:
                self._registry.change_job(each.name, problem=None)
            if number is None:
                continue
            chosen = number if each.settings.roll_out == "automatic" else self._accepted_before(each.name)
            if chosen is not None:
                changes[each.name] = chosen
        for broken in unusable:
            self._note_unusable(broken, known)
        lies_there = {each.name for each in found}
        for job in known.values():
            if job.name in lies_there or any(each.covers(job.name) for each in unusable):
                self._missed.pop(job.name, None)
            elif job.present:
                self._note_missing(job)
        self._offered |= set(changes.items())
        return changes

    def forget(self) -> None:
        """Drop the result of the last scan: another server has read the directory since, and may do so again."""
        for each in (self._seen, self._stored, self._missed, self._refused, self._submitted):
            each.clear()
        self._offered.clear()

    def _note_missing(self, job: JobRecord) -> None:
        """Stop a job whose file is gone for two looks: programs replace a file by removing it first."""
        self._missed[job.name] = self._missed.get(job.name, 0) + 1
        if self._missed[job.name] < _QUIET_LOOKS:
            return
        ran = job.desired is Desired.RUNNING
        desired = Desired.STOPPED if ran else job.desired
        self._stored.pop(job.name, None)
        self._registry.change_job(
            job.name, present=False, desired=desired.value, problem=_REMOVED if ran else job.problem
        )

    def _taken(
        self, found: FoundJob, known: JobRecord | None, refuse_to_move: Callable[[JobRecord], None]
    ) -> int | None:
        """Make a version of a file that is new or has changed, and return its number. None: nothing is new, or it still changes."""
        hash_before, looks = self._seen.get(found.name, ("", 0))
        looks = looks + 1 if hash_before == found.content_hash else 1
        self._seen[found.name] = (found.content_hash, looks)
        if known is not None and not known.present:
            back = {"desired": Desired.RUNNING.value} if known.problem == _REMOVED else {}
            # Another job may have its pipeline by now, so its version is rolled out again instead of being started.
            self._registry.change_job(found.name, present=True, problem=None, current_version=None, **back)
            known = self._registry.job(found.name)
            self._offered = {each for each in self._offered if each[0] != found.name}
        if self._stored.get(found.name) == found.content_hash:
            return None
        versions = self._registry.versions(found.name) if known is not None else []
        if versions and versions[0].content_hash == found.content_hash:
            self._stored[found.name] = found.content_hash
            return self._left_over(known, versions)
        if looks < _QUIET_LOOKS and versions:
            return None
        unit = found.settings.group or found.name
        if known is None:
            begun = Desired.RUNNING if found.settings.schedule is None else Desired.SCHEDULED
            desired = begun if found.settings.start else Desired.STOPPED
            self._registry.add_job(found.name, desired=desired, labels=found.settings.labels, unit=unit)
        elif known.unit != unit:
            refuse_to_move(known)
        self._registry.change_job(found.name, labels=found.settings.labels, unit=unit)
        return self._store_version(found)

    def _left_over(self, job: JobRecord | None, versions: Sequence[VersionRecord]) -> int | None:
        """Return the version of an unchanged file that must be rolled out, if any: a new one left by a server that was
        killed, or the last accepted one of a job whose file has come back.
        """
        left: VersionRecord | None = versions[0] if versions[0].state is VersionState.NEW else None
        if left is None and job is not None and job.current_version is None:
            left = _last_accepted(versions)
        return left.number if left is not None and (left.job, left.number) not in self._offered else None

    def _accepted_before(self, job: str) -> int | None:
        """Return the version to run of a job whose versions wait for ``headrace upgrade``: the last accepted one, if none is present.

        It is so when the file of a job has come back. What no person has rolled out so far waits.
        """
        if self._registry.job(job).current_version is not None:
            return None
        found = _last_accepted(self._registry.versions(job))
        return None if found is None else found.number

    def _store_version(self, found: FoundJob) -> int:
        number = self._registry.next_version(found.name)
        hashes = self._services.versions.store(found.name, number, found.files)
        record = VersionRecord(
            job=found.name, number=number, content_hash=found.content_hash, state=VersionState.NEW, reason=None,
            settings=msgspec.json.encode(found.settings).decode(), files=hashes, plan=None,
            author=self._author_of(found), note=None, created_seconds=self._services.clock.now(),
        )  # fmt: skip
        self.new_version(record, found.files)
        self._registry.add_version(record)
        self._submitted.pop(found.name, None)
        logger.info("job %s: version %d", found.name, number)
        return number

    def note_author(self, job: str, content: bytes, author: str) -> None:
        """Record who submits a job's file, for the version that is made from it. Called before the file is written."""
        self._submitted[job] = (content, author)

    def _author_of(self, found: FoundJob) -> str | None:
        content, author = self._submitted.get(found.name, (b"", ""))
        return author if author and found.files.get(found.file.name) == content else None

    def _note_unusable(self, broken: Unusable, known: Mapping[str, JobRecord]) -> None:
        if self._refused.get(broken.name) == broken.reason:
            return
        self._refused[broken.name] = broken.reason
        logger.error("%s: %s", broken.name, broken.reason)
        if broken.name in known:
            self._registry.change_job(broken.name, problem=broken.reason)


def _last_accepted(versions: Sequence[VersionRecord]) -> VersionRecord | None:
    """Return the newest accepted one of versions that are given newest first."""
    return next((each for each in versions if each.state is VersionState.ACCEPTED), None)
