"""A broken group source for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import headrace as hr
from headrace.interfaces.source import EARLIEST, GroupListener

from contract_samples.broken import Fault
from contract_samples.group_contracts import GroupLogContract
from contract_samples.group_sources import GroupLogSource


class Group(Fault, GroupLogContract):
    """The contract of a broken GroupLogSource, with little patience."""

    patience = timedelta(seconds=6)


class BrokenRebalancesForNothing(Group):
    """Once, when it has three queues, it drops them and takes them again, though nobody else is there."""

    breaks = "test_a_lone_member_gets_every_queue"

    class kind(GroupLogSource):
        was_restless = False

        def poll_group(self, timeout: timedelta) -> None:
            super().poll_group(timeout)
            if len(self.held) == 3 and not self.was_restless and self.listener is not None:
                self.was_restless = True
                queues = [hr.Queue(name) for name in self.held]
                self.listener.revoked(queues, lost=True)
                self.listener.assigned(queues)


class BrokenAssignsInJoin(Group):
    breaks = "test_listener_is_called_by_polls"

    class kind(GroupLogSource):
        def join(self, listener: GroupListener) -> None:
            super().join(listener)
            self.poll_group(timedelta(0))


class BrokenAssignsInThread(Group):
    breaks = "test_listener_is_called_by_polls"

    class kind(GroupLogSource):
        def take(self, names: set[str]) -> None:
            thread = threading.Thread(target=super().take, args=(names,))
            thread.start()
            thread.join()


class BrokenTakesItsTime(Group):
    breaks = "test_poll_group_keeps_its_timeout"

    class kind(GroupLogSource):
        def poll_group(self, timeout: timedelta) -> None:
            super().poll_group(timeout)
            threading.Event().wait(0.08)


class BrokenCommittedAtTheBeginning(Group):
    breaks = "test_nothing_is_committed_at_first"

    class kind(GroupLogSource):
        def committed(self, queue: hr.Queue) -> hr.ReadPosition | None:
            found = super().committed(queue)
            return found if found is not None else self.open(queue, EARLIEST).position


class BrokenCommitsWhenItLeaves(Group):
    """As clients do that commit by themselves."""

    breaks = "test_only_commit_moves_what_is_committed"
    also = frozenset({"test_nothing_is_committed_at_first"})

    class kind(GroupLogSource):
        def leave(self) -> None:
            if self.member is not None:
                readers = {name: self.open(hr.Queue(name), EARLIEST) for name in self.held}
                self.commit({hr.Queue(name): hr.ReadPosition(reader.latest) for name, reader in readers.items()})
            super().leave()


class _CallsAllLost(GroupListener):
    def __init__(self, listener: GroupListener) -> None:
        self._listener = listener

    def assigned(self, queues: Iterable[hr.Queue]) -> None:
        self._listener.assigned(queues)

    def revoked(self, queues: Iterable[hr.Queue], *, lost: bool = False) -> None:
        self._listener.revoked(queues, lost=True)


class BrokenCallsAllLost(Group):
    breaks = "test_members_share_the_queues"

    class kind(GroupLogSource):
        def give_up(self, names: set[str]) -> None:
            listener = self.listener
            assert listener is not None
            self.listener = _CallsAllLost(listener)
            try:
                super().give_up(names)
            finally:
                self.listener = listener


class BrokenNeverGivesUp(Group):
    breaks = "test_members_share_the_queues"
    also = frozenset({"test_leaving_hands_over"})  # there they share, too

    class kind(GroupLogSource):
        def give_up(self, names: set[str]) -> None:
            pass


class BrokenStaysAMember(Group):
    """The others learn that it has left when its process ends."""

    breaks = "test_leaving_hands_over"

    class kind(GroupLogSource):
        def leave(self) -> None:
            self.member = None


class BrokenKeepsTheDead(Group):
    breaks = "test_a_dead_member_is_replaced"
    thorough = True
    patience = timedelta(seconds=8)

    class kind(GroupLogSource):
        @contextmanager
        def group(self) -> Iterator[Any]:
            with mock.patch("os.path.exists", return_value=True), super().group() as connection:
                yield connection


class BrokenLeavesOnce(Group):
    breaks = "test_leave_and_close_are_harmless"

    class kind(GroupLogSource):
        has_left = False

        def leave(self) -> None:
            if self.has_left:
                raise RuntimeError("not a member")
            self.has_left = self.member is not None
            super().leave()

        def close(self) -> None:
            if not self.has_left:
                super().close()
