"""Which file belongs to which queue: followed through rotation, so that no file is read under two names.

A queue keeps the name under which its first file was found. The file it reads now (``current``), those it has read
(``past``) and those it is going to read after a rotation (``claimed``) are its own: discovery does not make queues of them, and
other queues do not continue with them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.flow.messages import ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import BrokenQueueError, DataError

from headrace_file.file_system import LOCAL, FileSystem, Paths
from headrace_file.identity import FileIdentity, Fingerprint, Place, past_of
from headrace_file.rotated_order import is_later, order_key
from headrace_file.rotation import Glimpse, RotatedNames, glimpse
from headrace_file.siblings import Directories
from headrace_file.waypoints import Waypoints

Key = tuple[int, int]
#: The number of past files that are remembered for a queue whose rotated files discovery never finds: they are needed only for the order.
_PAST_MAX = 16
#: And how many of them positions keep.
_PAST_STORED_MAX = 2
#: The number of removed queues whose ends are remembered, in case their paths appear again.
_GONE_MAX = 10_000


@dataclass
class QueueFiles:
    """The known files of one queue. ``lock`` guards the cursors that run ahead of the readers."""

    name: str
    #: The place of the earliest record.
    beginning: Place
    #: The furthest place that a reader or a plan has reached.
    place: Place
    past: list[FileIdentity] = field(default_factory=list)
    claimed: list[FileIdentity] = field(default_factory=list)
    gone: bool = False
    #: Whether a reader has looked at the file: when no bytes of it are known, it had none.
    looked_at: bool = False
    missing_since: float | None = None
    lock: threading.RLock = field(default_factory=lambda: threading.RLock())
    ahead: Any = None
    plan: Any = None
    plan_begin: Place | None = None
    waypoints: Waypoints = field(default_factory=Waypoints)

    @property
    def current(self) -> FileIdentity | None:
        return self.place.file

    def files(self) -> Iterator[FileIdentity]:
        """Yield every file that is this queue's own.

        Those of a queue that has gone count only where their content is known: their inodes may be used again.
        """
        for known in (self.current, *self.past, *self.claimed):
            if known is not None and (known.head.length or not self.gone):
                yield known


class Owners:
    """The queues that may own a file, and the knowledge of each about it: inodes are reused, so several queues may know one."""

    def __init__(self, states: Iterable[QueueFiles]) -> None:
        self._owners: dict[Key, list[tuple[QueueFiles, FileIdentity]]] = {}
        for state in states:
            for file in state.files():
                self.add(state, file)

    def add(self, state: QueueFiles, file: FileIdentity) -> None:
        self._owners.setdefault(file.key, []).append((state, file))

    def owner(self, key: Key, look: Callable[[], Glimpse | None]) -> QueueFiles | None:
        """Return the queue that owns the file with this key; ``look`` shows it, if that is needed.

        A queue owns it that knows how it begins, else one that has not seen any bytes of it.
        """
        known = self._owners.get(key, ())
        unseen = next((state for state, file in known if not file.head.length), None)
        if all(not file.head.length for _, file in known):
            return unseen
        seen = look()
        return next((s for s, file in known if file.head.length and seen and seen.is_same_as(file)), unseen)


class Tracker:
    """All queues of one source object. Usable from several threads."""

    def __init__(
        self,
        paths: Paths,
        names: RotatedNames,
        compression: str,
        *,
        rotate_wait_seconds: float,
        clock: Clock,
        files: FileSystem = LOCAL,
    ) -> None:
        self._files = files
        self._paths = paths
        self._names = names
        self._compression = compression
        self._rotate_wait_seconds = rotate_wait_seconds
        self._clock = clock
        self._lock = threading.RLock()
        #: The shared knowledge of cursors and this object about the directories.
        self.directories = Directories(files)
        #: When the last look at the paths began, by ``time.monotonic``: questions during it may be answered by the same listing.
        self._looked_seconds = 0.0
        self._queues: dict[str, QueueFiles] = {}
        #: Grows when files may belong to other queues than before: positions name the past files of their queue.
        self.version = 0
        #: What the last look found, if it found each queue with the file that it reads, and no other file.
        self._settled: tuple[str, ...] | None = None
        #: Which queues may own a file: more than those that do, so that it is enough to add to it.
        self._owners: dict[Key, dict[str, None]] = {}
        #: The names of removed queues, the earliest first.
        self._gone: dict[str, None] = {}

    # ------------------------------------------------------------------------------------------------ what is known

    def queue(self, name: str) -> QueueFiles:
        """Return the state of a queue. When it is asked for the first time, reading begins with the file at its
        path.
        """
        with self._lock:
            if name not in self._queues:
                self._add(name, None)
            return self._queues[name]

    def close(self) -> None:
        """Close the files that counts and plans hold open."""
        with self._lock:
            for state in self._queues.values():
                for cursor in (state.ahead, state.plan):
                    if cursor is not None:
                        cursor.close()

    def learn(self, name: str, position: ReadPosition) -> Place | None:
        """Take a position from a checkpoint; return it as a place, or None when it has no hint."""
        if not position.hint:
            return None
        place = Place.from_position(position)
        with self._lock:
            state = self.queue(name)
            if (place.generation, place.offset) >= (state.place.generation, state.place.offset):
                state.place, state.looked_at, self._settled = place, True, None
                self.version += 1
                state.past += [known for known in past_of(position.hint) if known not in state.past]
                self._note(state.name, *state.files())
        return place

    def reached(self, name: str, place: Place) -> None:
        """Store how far a queue was read or planned, or that its file was looked at."""
        with self._lock:
            state = self.queue(name)
            state.looked_at = True
            if (place.generation, place.offset) >= (state.place.generation, state.place.offset):
                self._move(state, place)

    def _move(self, state: QueueFiles, place: Place) -> None:
        before, generation = state.current, state.place.generation
        state.place = place
        if before is None or place.file is None or before.key != place.file.key:
            self._settled = None
            self.version += 1
        self._note(state.name, *([place.file] if place.file is not None else ()))
        # A file that was copied and truncated is another one in the same place: its copy is recognized by the previous content.
        left = place.file is not None and (place.generation > generation or (before and before.key != place.file.key))
        if before is not None and left and before.head.length and before not in state.past:
            state.past.append(before)
            if not self._paths.may_hold_rotated:
                del state.past[:-_PAST_MAX]
        state.claimed = [f for f in state.claimed if place.file is None or f.key != place.file.key]

    def past(self, name: str) -> Sequence[FileIdentity]:
        """Return what positions keep of the files read before: all where discovery could meet them again, else the last ones.

        What was read last may change its time once more, when it is compressed, and look as if it came after the file that is read now.
        """
        with self._lock:
            state = self._queues.get(name)
            if state is None:
                return ()
            return tuple(state.past if self._paths.may_hold_rotated else state.past[-_PAST_STORED_MAX:])

    def excludes(self, name: str, seen: Glimpse, current: FileIdentity) -> bool:
        """Return whether the queue must not continue with a file after ``current``.

        It must not when the file is another queue's, one of those read before, or a compressed copy of any of these.
        """
        with self._lock:
            own = self._queues.get(name)
            # What a reader has read to its end in this moment is still the current file here.
            own_files = (*own.past, own.current) if own is not None else ()
            read = [f for f in own_files if f is not None and f.head.length and f.generation < current.generation]
            if any(seen.is_same_as(known) for known in read):
                return True
            if any(seen.is_copy_of(known) for known in [*read, current]):
                return True
            others = [each for each in self._owners.get(seen.identity.key, ()) if each != name and each in self._queues]
            return any(seen.is_same_as(known) for other in others for known in self._queues[other].files())

    def _note(self, name: str, *files: FileIdentity) -> None:
        """Record that a queue may own files, with which other queues must not continue."""
        for file in files:
            self._owners.setdefault(file.key, {})[name] = None

    # ------------------------------------------------------------------------------------------------ discovery

    def discover(self) -> tuple[str, ...]:
        """Check the paths again; return the names of the queues that exist now, in order. The same object: nothing has changed."""
        with self._lock:
            self._looked_seconds = time.monotonic()
            if self._settled is not None and self._paths.unchanged():
                return self._settled
            found = self._paths.files(known=self._queues.keys())
            names: list[str] = []
            changed: list[QueueFiles] = []
            for state in self._queues.values():
                state.claimed = []
                file, current = found.get(state.name), state.current
                if file is not None and current is not None and file.key == current.key and not state.gone:
                    state.missing_since = None
                    names.append(state.name)
                elif file is not None or not state.gone:
                    changed.append(state)
            self._settled = None
            if changed or len(found) != len(names):
                return tuple(sorted(names + self._resolve(found, changed)))
            self._settled = tuple(sorted(names))
            return self._settled

    def _resolve(self, found: Mapping[str, FileIdentity], changed: Sequence[QueueFiles]) -> list[str]:
        """Return which of the queues whose path has changed still exist, and the new ones."""
        self.version += 1
        known = dict(self._queues)
        owners = Owners(known.values())
        # Shorter names first: app.log claims its rotated files before app.log.1 asks for what now bears its name.
        ordered = sorted(changed, key=lambda state: (len(state.name), state.name))
        names = [state.name for state in ordered if self._exists(state, found, owners)]
        postponed = False
        for name, file in found.items():
            if name in known:
                continue
            owner = self._owner(name, file, owners, known)
            if owner == "":
                postponed = True
            elif owner is None:
                owners.add(self._add(name, file), file)
                names.append(name)
        if not postponed:
            self._forget_past({file.key for file in found.values()})
        self._owners = {}
        for state in self._queues.values():
            self._note(state.name, *state.files())
        return names

    def _add(self, name: str, file: FileIdentity | None) -> QueueFiles:
        self._settled = None
        beginning = Place(0, 0, 0, 0, file)
        state = self._queues[name] = QueueFiles(name, beginning, beginning)
        self._note(name, *([file] if file is not None else ()))
        return state

    def _exists(self, state: QueueFiles, found: Mapping[str, FileIdentity], owners: Owners) -> bool:
        """Return whether a known queue is still there; claim the files that a rotation has given it."""
        file, current = found.get(state.name), state.current
        if file is not None and self._owner_of(state.name, file.key, owners) not in (None, state):
            file = None  # another queue's rotated file has taken the name
        if state.gone:
            if file is None:
                return False
            self._revive(state, file)
            owners.add(state, file)
            return True
        if current is None or (file is not None and file.key == current.key):
            state.missing_since = None
            return file is not None
        try:
            located = self._locate(state, current)
            self._claim_successors(state, current, located, owners)
        except BrokenQueueError:
            return True  # its folder cannot be read: the error comes when the file is read
        if file is not None:
            owners.add(state, file)
            state.claimed.append(file)
            state.missing_since = None
            return True
        if located is not None and self._has_unread(state, located):
            return True
        if (located is not None or state.claimed) and self._in_grace(state):
            return True
        state.gone = True
        self._gone[state.name] = None
        if len(self._gone) > _GONE_MAX:
            name = next(iter(self._gone))
            del self._gone[name], self._queues[name]
        return False

    def _locate(self, state: QueueFiles, current: FileIdentity) -> str | None:
        """Return where the file that the queue reads is, when it is not at its path: renamed, else copied."""
        beside = self.directories.beside(state.name, self._looked_seconds)
        for path in beside.with_inode(current.inode):
            seen = self._glimpse(path)
            if seen is not None and seen.is_same_as(current):
                return path
        if not current.head.length:
            return None
        for sibling in self._names.among(state.name, beside, self._files):
            seen = self._glimpse(sibling.path)
            if seen is not None and current.head.matches(seen.head):
                return sibling.path
        return None

    def _owner_of(self, path: str, key: Key, owners: Owners) -> QueueFiles | None:
        """Return the queue that owns the file at ``path``: none if it is a new one that was given an old inode."""
        return owners.owner(key, lambda: self._glimpse(path))

    def _revive(self, state: QueueFiles, file: FileIdentity) -> None:
        """A file appears again under a name that had disappeared: record numbers continue after the last one."""
        state.gone, state.missing_since = False, None
        self._gone.pop(state.name, None)
        if state.current is not None and state.current.key == file.key and self._is_current(state):
            return
        last = state.place
        if last.offset or last.generation or last.byte:
            state.beginning = Place(last.offset, last.generation + 1, last.offset, 0, file)
            self._move(state, state.beginning)
        else:
            state.beginning = state.place = Place(0, 0, 0, 0, file)
        state.ahead = state.plan = state.plan_begin = None

    def _is_current(self, state: QueueFiles) -> bool:
        seen = self._glimpse(state.name)
        return seen is not None and state.current is not None and seen.is_same_as(state.current)

    def _claim_after_truncation(self, state: QueueFiles, owners: Owners) -> None:
        """Claim the copies that were made when the queue's file was copied and truncated: the inode does not show this."""
        current = state.current
        if state.gone or current is None:
            return
        status = self._files.status_or_none(state.name)
        if status is None or (status.st_dev, status.st_ino) != current.key:
            return
        if not current.head.length:  # empty when it was looked at: whatever was written since may be in a copy
            if state.looked_at and status.st_mtime_ns != current.modified_ns:
                self._claim_successors(state, current, None, owners)
        elif not self._is_current(state):
            self._claim_successors(state, current, self._locate(state, current), owners)

    def _claim_successors(self, state: QueueFiles, current: FileIdentity, located: str | None, owners: Owners) -> None:
        status = self._files.status_or_none(located) if located is not None else None
        after = order_key(located or "", status.st_mtime_ns if status is not None else current.modified_ns)
        if located is None and not current.head.length:
            after = (current.modified_ns, -sys.maxsize, "")  # it was written when this one was empty, or later
        beside = self.directories.beside(state.name, self._looked_seconds)
        for sibling in self._names.among(state.name, beside, self._files):
            if sibling.path == located:
                continue
            status = self._files.status_or_none(sibling.path)
            if status is None:
                continue
            if not is_later(sibling.path, order_key(sibling.path, status.st_mtime_ns), located or "", after):
                continue
            key = (status.st_dev, status.st_ino)
            if not current.head.length and self._holds_past(state, sibling.path):
                continue  # compressed now, and written last when this file was made, or later
            if self._owner_of(sibling.path, key, owners) is None:
                identity = FileIdentity(key)
                owners.add(state, identity)
                state.claimed.append(identity)

    def _holds_past(self, state: QueueFiles, path: str) -> bool:
        """Return whether a file begins as one that the queue has read."""
        seen = self._glimpse(path)
        return seen is not None and any(f.head.length and f.head.matches(seen.head) for f in state.past)

    def _has_unread(self, state: QueueFiles, located: str) -> bool:
        place = state.place
        if place.more or not place.byte:
            return True
        seen = self._glimpse(located)
        status = self._files.status_or_none(located)
        if seen is None or status is None:
            return False
        return not seen.compressed and status.st_size > place.byte + place.taken

    def _in_grace(self, state: QueueFiles) -> bool:
        """Return whether the path is probably only missing between a rename and the creation of the next file."""
        now = self._clock.monotonic()
        if state.missing_since is None:
            state.missing_since = now
        return now - state.missing_since < self._rotate_wait_seconds

    def _owner(self, name: str, file: FileIdentity, owners: Owners, known: Mapping[str, QueueFiles]) -> str | None:
        """Return the queue to which a new name belongs; None: it is a new queue; "": it is too early to decide."""
        key = file.key
        if (owner := self._owner_of(name, key, owners)) is not None:
            return owner.name
        for original in self._names.possible_originals(name):
            state = known.get(original)
            if state is None or not self._names.matcher(original)(name):
                continue
            self._claim_after_truncation(state, owners)
            if (owner := self._owner_of(name, key, owners)) is not None:
                return owner.name
            try:
                seen = glimpse(name, self._compression, self._files)
            except DataError:
                return None  # reading it will raise the error
            if seen is None or not seen.head:
                return ""
            copied = next((known for known in self._heads(state) if known.head.matches(seen.head)), None)
            if copied is not None:
                # A copy, made by copytruncate or compression.
                copy = replace(seen.identity, generation=copied.generation)
                state.past.append(copy)
                owners.add(state, copy)
                return original
            if self._clock.now() - seen.identity.modified_ns / 1e9 < self._rotate_wait_seconds:
                return ""  # the copy may not be complete yet
            other = self._read_under_another_name(seen) if seen.compressed else None
            if other is not None:
                other.past.append(replace(seen.identity, generation=other.place.generation))
                owners.add(other, other.past[-1])
                return other.name
        return None

    def _read_under_another_name(self, seen: Glimpse) -> QueueFiles | None:
        """Return the queue that has read the whole content of a compressed file: a rotated file that was a separate queue."""
        head = Fingerprint.of(seen.head)
        for state in self._queues.values():
            current = state.current
            if current is not None and current.head == head and state.place.byte and not state.place.more:
                return state
        return None

    def _heads(self, state: QueueFiles) -> Iterator[FileIdentity]:
        for known in (state.current, *state.past):
            if known is not None and known.head.length:
                yield known
        seen = self._glimpse(state.name)
        if seen is not None and seen.identity.head.length:
            yield replace(seen.identity, generation=state.place.generation)

    def _glimpse(self, path: str) -> Glimpse | None:
        try:
            return glimpse(path, self._compression, self._files)
        except DataError:
            return None  # damaged: not a file that was read

    def _forget_past(self, present: set[Key]) -> None:
        """Drop past files that discovery cannot find any more."""
        if self._paths.may_hold_rotated:
            for state in self._queues.values():
                state.past = [known for known in state.past if known.key in present]
