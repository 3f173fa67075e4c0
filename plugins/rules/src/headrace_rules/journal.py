"""The directory with the versions of a running job's rules, and the offset of each queue from which each version is used.

    versions/000002.json        a version: its rules, who gave it and when; never changed once written
    switches/<hash>-000002      the offset from which a queue uses the version; <hash> is that of the queue's id
    origin                      the fingerprint of the rules in the job's code: a start compares it to notice changes
    audit.jsonl                 a line for each version and each switch

All processes of a job that run its rules use the same directory: on one machine, or on a shared file system. The first
process that writes a switch decides its offset. So records that are read again, after a crash too, are tested against the
same version as before.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.foundation.errors import CheckpointError, JobError

from headrace_rules.background import pause
from headrace_rules.model import Rejection, Rule, RuleSet

#: The number of the first version: the rules in the code of the job.
FIRST = 1
#: Prefix of the directories of runs that have no checkpoint. Such a directory belongs to one run.
TEMPORARY = "headrace-rules-"


def temporary_place() -> str:
    """Return a directory for the versions of a run without a checkpoint.

    It is made on first use. The process that planned the run removes it when it ends; workers on other machines leave theirs.
    """
    if not _given:
        atexit.register(_remove_given, os.getpid())
    place = str(Path(tempfile.gettempdir()) / f"{TEMPORARY}{uuid.uuid4().hex}")
    _given.append(place)
    return place


#: The directories that this process has given; not all of them have been made.
_given: list[str] = []


def _remove_given(process_id: int) -> None:
    for place in _given if os.getpid() == process_id else ():  # not in a fork
        shutil.rmtree(place, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RulesVersion:
    """A version of a verb's rules. ``who`` and ``at`` (ISO 8601, UTC) say who gave it and when."""

    number: int
    rules: RuleSet
    who: str
    at: str


class RuleJournal:
    """The directory of one verb's versions. Nothing is written before rules are given to the running job for the first time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._versions = self.directory / "versions"
        self._switches = self.directory / "switches"

    def stamp(self) -> tuple[int, int]:
        """Return the times (ns) of the last new version and the last new switch; zeros if there is none. Called for every batch."""
        try:
            return os.stat(self._versions).st_mtime_ns, os.stat(self._switches).st_mtime_ns
        except FileNotFoundError:
            return 0, 0

    def latest(self) -> int:
        """Return the number of the newest version; 0 when there is none."""
        try:
            numbers = [int(name.removesuffix(".json")) for name in os.listdir(self._versions) if name[0] != "."]
        except FileNotFoundError:
            return 0
        return max(numbers, default=0)

    def read(self, number: int) -> RulesVersion:
        """Return a version. Raises CheckpointError when it is damaged or missing, JobError when others can write to the directory."""
        path = self._versions / f"{number:06}.json"
        try:
            self._check_owner()
            content = json.loads(path.read_text(encoding="utf-8"))
            rules = RuleSet([_rule_of(one) for one in content["rules"]])
            return RulesVersion(number, rules, str(content["who"]), str(content["at"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"version {number} of the rules cannot be read from {path}: {error}",
                plugin="rules",
                hint="remove the directory: the job then starts with the rules in its code",
            ) from error

    def begin(self, rules: RuleSet, *, at: str) -> None:
        """Write the rules in the job's code as the first version, or as a new version if they have changed since the last start."""
        origin = self.directory / "origin"
        known = origin.read_text(encoding="utf-8").strip() if origin.exists() else None
        if known == rules.fingerprint():
            return
        self.add(rules, who="the job", at=at)
        _write(origin, rules.fingerprint().encode())

    def add(self, rules: RuleSet, *, who: str, at: str, rejected: Sequence[Rejection] = ()) -> RulesVersion:
        """Add a version after the newest one and return it. If the newest one has the same rules, return that one instead.

        Raises JobError when others can write to the directory.
        """
        self._make()
        while True:
            latest = self.latest()
            before = self.read(latest) if latest else None
            if before is not None and before.rules.fingerprint() == rules.fingerprint():
                return before
            number = latest + 1
            content = {
                "version": number, "who": who, "at": at, "fingerprint": rules.fingerprint(),
                "rules": [_as_mapping(rule) for rule in rules], "rejected": [str(one) for one in rejected],
            }  # fmt: skip
            if _write_new(self._versions / f"{number:06}.json", json.dumps(content, ensure_ascii=False).encode()):
                break
        changes = _changes(before.rules if before is not None else None, rules)
        self.audit(event="version", version=number, who=who, at=at, fingerprint=rules.fingerprint(),
                   rules=len(rules), rejected=[str(one) for one in rejected], **changes)  # fmt: skip
        return RulesVersion(number, rules, who, at)

    def switch(self, number: int, queue: str, offset: int, *, at: str) -> int:
        """Record that a queue uses a version from an offset on. Return the valid offset: the one that was recorded first."""
        path = self._switches / f"{_name(queue)}-{number:06}"
        if _write_new(path, json.dumps({"queue": queue, "offset": offset, "at": at}).encode()):
            self.audit(event="switch", version=number, queue=queue, offset=offset, at=at)
            return offset
        return int(json.loads(path.read_text(encoding="utf-8"))["offset"])

    def switches(self, queue: str) -> list[tuple[int, int]]:
        """Return (offset, version) for each switch of a queue, in the order of versions."""
        prefix = _name(queue) + "-"
        try:
            names = sorted(name for name in os.listdir(self._switches) if name.startswith(prefix))
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            content = json.loads((self._switches / name).read_text(encoding="utf-8"))
            found.append((int(content["offset"]), int(name.rpartition("-")[2])))
        return found

    def audit(self, **values: Any) -> None:
        """Append a line to the audit file."""
        line = json.dumps(values, ensure_ascii=False) + "\n"
        file = os.open(self.directory / "audit.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def audited(self) -> list[Mapping[str, Any]]:
        """Return the audit file's lines."""
        try:
            text = (self.directory / "audit.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def _make(self) -> None:
        for place in (self.directory, self._versions, self._switches):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._check_owner()

    def _check_owner(self) -> None:
        """Raise JobError if another user may have written to the directory."""
        found = self.directory.stat()
        if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
            raise JobError(
                f"{self.directory} can be written by other users, so rules are not read from it",
                plugin="rules",
                hint=f"chmod go-w {self.directory}",
            )


def _as_mapping(rule: Rule) -> dict[str, Any]:
    pause()
    return {"id": rule.id, "expression": rule.expression, "severity": rule.severity, "labels": rule.labels,
            "description": rule.description, "place": rule.place}  # fmt: skip


def _rule_of(content: Mapping[str, Any]) -> Rule:
    pause()
    return Rule(**{**content, "labels": tuple(content["labels"])})


def _name(queue: str) -> str:
    return hashlib.sha256(queue.encode()).hexdigest()[:20]


def _write(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    os.replace(new, path)


def _write_new(path: Path, content: bytes) -> bool:
    """Create a file with its whole content in one step. If it exists already, return False and do not change it."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{id(content)}.new")
    new.write_bytes(content)
    try:
        os.link(new, path)
    except FileExistsError:
        return False
    finally:
        new.unlink()
    return True


def _changes(before: RuleSet | None, after: RuleSet) -> dict[str, list[str]]:
    old = {} if before is None else before.by_id
    new = after.by_id
    changed = [i for i in new if i in old and _what_counts(old[i]) != _what_counts(new[i])]
    return {"added": [i for i in new if i not in old], "removed": [i for i in old if i not in new], "changed": changed}


def _what_counts(rule: Rule) -> tuple[Any, ...]:
    return rule.expression, rule.severity, rule.labels
