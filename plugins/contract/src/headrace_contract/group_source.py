"""The contract of group sources: additional checks for brokers that share queues among the instances of a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, TypeVar, cast

import pytest
from headrace.flow.messages import ReadPosition
from headrace.interfaces.source import EARLIEST, GroupSource, Source

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.crash import Child
from headrace_contract.group_member import DyingMember, Member, RunningMember
from headrace_contract.source_harness import SourceHarness

T = TypeVar("T")


class GroupSourceContract(SourceHarness):
    """What a ``GroupSource`` must do in addition to what ``SourceContract`` checks. Its author gives the same methods.

    Within one check, all sources that ``make_source`` returns must be in the same group. Each check needs a new group.
    """

    #: False for a broker where each member computes by itself which queues it has. Then a new member may begin with a queue
    #: before the previous member of the queue has committed, and reads records a second time.
    hands_over_in_turn: ClassVar[bool] = True

    def test_a_lone_member_gets_every_queue(self) -> None:
        """The only member of a group gets all queues, each once, and can read them.

        Steps: make three queues with 10 records each; join, and poll. Passes when each is assigned once, none is lost, and
        all records come.
        """
        queues = self._queues(3, 10)
        with self._running() as member:
            self._until(lambda: self._read_all([member], queues, 10), [member], "all queues are assigned and read")
            counts = {name: len(found) for name, found in member.member.begun.items()}
        expect(
            counts == dict.fromkeys(queues, 1) and not member.member.lost,
            expected=f"each of the {len(queues)} queues is assigned once to the only member",
            found=f"times assigned: {counts}; lost: {member.member.lost}",
            mend="give queues up only when another member has joined",
        )

    def test_listener_is_called_by_polls(self) -> None:
        """The listener is called in the thread that polls, during a poll: a runtime uses no locks for it.

        Steps: join; wait a little without polling; poll until the queue is read. Passes when every call of the listener
        came from within ``poll_group`` or a reader's ``poll``, in the thread that called these.
        """
        [name] = self._queues(1, 5)
        with self._member() as member:
            member.source.join(member)
            threading.Event().wait(0.3)
            self._step_until(member, lambda: len(member.records.get(name, ())) == 5, "the queue is read")
            wrong = list(member.wrong_calls)
        expect(
            not wrong,
            expected="assigned and revoked are called from within poll_group or poll",
            found="; ".join(wrong),
            mend="store what the broker says, and call the listener when poll_group is called",
        )

    def test_poll_group_keeps_its_timeout(self) -> None:
        """``poll_group`` with a time-out of zero does not wait: a runtime calls it between batches.

        Steps: join, poll until the queue is read; call ``poll_group`` and the reader's ``poll`` five times with zero. Passes
        when the quickest of the five took at most ``zero_timeout_limit``.
        """
        [name] = self._queues(1, 5)
        with self._member() as member:
            member.source.join(member)
            self._step_until(member, lambda: len(member.records.get(name, ())) == 5, "the queue is read")
            taken = min(self._timed(lambda: member.step(wait=timedelta(0))) for _ in range(5))
        limit = self.zero_timeout_limit.total_seconds()
        expect(
            taken <= limit,
            expected=f"poll_group(0) returns within {limit:g} s",
            found=f"the quickest of five took {taken:.3f} s",
            mend="wait only as long as the caller allows",
        )

    def test_nothing_is_committed_at_first(self) -> None:
        """``committed`` is None until somebody commits: otherwise a new group would not begin where the job says.

        Steps: make a queue with 10 records; ask for the committed position; join and read the queue without a commit; ask
        another source. Passes when both answers are None.
        """
        [name] = self._queues(1, 10)
        with self._group_source() as source:
            before = source.committed(self.queue(source, name))
        with self._member() as member:
            member.source.join(member)
            self._step_until(member, lambda: len(member.records.get(name, ())) == 10, "the queue is read")
            member.leave(commit=False)
        with self._group_source() as source:
            after = source.committed(self.queue(source, name))
        expect(
            before is None and after is None,
            expected="committed() is None before the first commit, also when the queue was read",
            found=f"{before} before, {after} after it was read",
            mend="commit only what commit() is given; switch off the automatic commits of the client library",
        )

    def test_only_commit_moves_what_is_committed(self) -> None:
        """The committed position is that of the last ``commit``, not how far the queue was read.

        Steps: read 20 records as a member, commit the position after the 7th, read nothing more, leave; ask another source.
        Passes when it gives that position, and a reader opened there gives the other 13.
        """
        [name] = self._queues(1, 20)
        position = self._position_of(name, 7)
        with self._member() as member:
            member.source.join(member)
            self._step_until(member, lambda: len(member.records.get(name, ())) == 20, "the queue is read")
            [queue] = member.positions()
            member.source.commit({queue: position})
            member.leave(commit=False)
        with self._group_source() as source:
            queue = self.queue(source, name)
            committed = source.committed(queue)
            expect(
                committed is not None and committed.offset == position.offset,
                expected=f"committed() gives {position}",
                found=str(committed),
                mend="store what commit() is given before it returns; commit nothing else, not even when leaving",
            )
            reader = source.open(queue, cast("ReadPosition", committed))
            rest = self.read_to_end(reader).records
            reader.close()
        self.expect_bodies(
            rest, self.bodies(7, 13), what="the records that were not committed", mend="open at the committed position"
        )

    def test_members_share_the_queues(self) -> None:
        """Two members share all queues: each has some, and no queue belongs to both. No record is lost by the new assignment.

        Steps: make four queues with 10 records; let one member read them; let another join, so that the first commits and
        gives up queues; write 10 more to each. Passes when they share the queues, no queue is revoked as lost, the second
        finds a committed position in each of its queues (if ``hands_over_in_turn``), and the two together read all records.
        """
        self._need_several()
        queues = self._queues(4, 10)
        with self._running() as first:
            self._until(lambda: self._read_all([first], queues, 10), [first], "the first member reads all queues")
            with self._running() as second:
                both = [first, second]
                self._until(lambda: self._shared(both, queues), both, "two members share four queues")
                for number, name in enumerate(queues):
                    self.write(name, self.bodies(1000 * number + 10, 10))
                self._until(lambda: self._read_all(both, queues, 20), both, "the two members read everything")
                moved = {name: found[0] for name, found in second.member.begun.items() if found}
        lost = [*first.member.lost, *second.member.lost]
        expect(
            not lost,
            expected="queues that a member gives up during a poll are not lost: it can still finish their records",
            found=f"revoked with lost=True: {lost}",
            mend="pass lost=True only if another member may have the queue already",
        )
        expect(
            moved and (not self.hands_over_in_turn or all(position is not None for position in moved.values())),
            expected="the second member begins where the first committed when its queues were revoked",
            found=f"committed when it took them: {moved}",
            mend="call revoked before the queue is given up, and store what it commits",
        )

    def test_leaving_hands_over(self) -> None:
        """When a member leaves, the others get its queues soon, and continue at the positions that it committed.

        Steps: two members share four queues with 10 records; the first commits and leaves; write 5 more to each. Passes
        when the second gets all queues, and reads just these 5 records of each queue that the first had.
        """
        self._need_several()
        queues = self._queues(4, 10)
        with self._running() as first:
            self._until(lambda: first.member.held == set(queues), [first], "the first member has all queues")
            with self._running() as second:
                both = [first, second]
                self._until(lambda: self._shared(both, queues), both, "two members share four queues")
                self._until(lambda: self._read_all(both, queues, 10), both, "the two members read everything")
                left = first.member.held
                before = {name: len(second.member.records.get(name, ())) for name in left}
                first.stop(self.patience)
                self._until(lambda: second.member.held == set(queues), [second], "the remaining member gets all queues")
                for number, name in enumerate(queues):
                    self.write(name, self.bodies(1000 * number + 10, 5))
                self._until(
                    lambda: self._read_all(both, queues, 15), [second], "the remaining member reads the new records"
                )
                found = {name: second.member.records[name][count:] for name, count in before.items()}
        for number, name in enumerate(queues):
            if name in left:
                self.expect_bodies(
                    found[name],
                    self.bodies(1000 * number + 10, 5),
                    what=f"queue {name!r} after it was handed over",
                    mend="begin at the position that the previous member had committed",
                )

    def test_a_dead_member_is_replaced(self) -> None:
        """When a member's process dies, another gets its queues, and begins where it had committed.

        Steps: a process gets the source by cloudpickle, joins, reads 20 records, commits the position after the 7th, and is
        killed (SIGKILL); then another member joins. Passes when this member gets the queue, from the 8th record on.
        """
        [name] = self._queues(1, 20)
        position = self._position_of(name, 7)
        source = self._made()
        patience = self.patience.total_seconds()
        task = DyingMember(source, name, 20, position, patience)
        with Child(task, importable=(type(source), type(source.settings))) as child:
            child.wait_until_killed(patience_seconds=2 * patience)
        with self._running() as member:
            self._until(lambda: len(member.member.records.get(name, ())) >= 13, [member], "the queue is taken over")
            found = member.member.records[name]
        self.expect_bodies(
            found,
            self.bodies(7, 13),
            what="the records that were not committed",
            mend="begin at the committed position",
        )

    def test_leave_and_close_are_harmless(self) -> None:
        """``leave`` and ``close`` may come in any order and twice, also without ``join``.

        Steps: leave and close a source that never joined; join another, leave, leave, close, close. Passes when nothing is
        raised.
        """
        [name] = self._queues(1, 1)
        try:
            never = self._made()
            never.leave()
            never.close()
            with self._member() as member:
                member.source.join(member)
                self._step_until(member, lambda: len(member.records.get(name, ())) == 1, "the queue is read")
                for end in (member.source.leave, member.source.leave, member.source.close, member.source.close):
                    end()
        except Exception as error:
            violated(
                expected="leave() and close() are harmless when there is nothing to leave or close",
                found=f"{type(error).__name__}: {error}",
                mend="store whether the source is a member; reset this first, then leave the group",
            )

    # ------------------------------------------------------------------------------------------------ inside

    def _need_several(self) -> None:
        if not self.several_queues:
            pytest.skip("not checked: the source has one queue only (several_queues = False)")

    def _made(self) -> GroupSource:
        source: Source = self.make_source()
        expect(
            isinstance(source, GroupSource),
            expected="make_source() returns a headrace.interfaces.source.GroupSource",
            found=shortened(source),
            mend="derive the class from GroupSource, or use SourceContract alone",
        )
        source.check()
        return cast("GroupSource", source)

    def _queues(self, count: int, records: int) -> list[str]:
        """Make queues; record numbers of the n-th begin at 1000 n."""
        made = [self.add_queue() for _ in range(count if self.several_queues else 1)]
        for number, name in enumerate(made):
            self.write(name, self.bodies(1000 * number, records))
        return made

    @contextmanager
    def _group_source(self) -> Iterator[GroupSource]:
        source = self._made()
        try:
            yield source
        finally:
            source.close()

    @contextmanager
    def _member(self) -> Iterator[Member]:
        """Give a member whose ``step`` the check calls."""
        member = Member(self._made())
        try:
            yield member
        finally:
            member.close()

    @contextmanager
    def _running(self) -> Iterator[RunningMember]:
        """Give a member that runs in its own thread."""
        running = RunningMember(Member(self._made()))
        try:
            yield running
        finally:
            running.stop(self.patience)

    def _position_of(self, name: str, record: int) -> ReadPosition:
        """Return the position of a record, by its number in the queue (from 0)."""
        with self._group_source() as source:
            reader = source.open(self.queue(source, name), EARLIEST)
            self.read(reader, record, per_poll=record)
            position = reader.position
            reader.close()
        return position

    def _until(self, condition: Callable[[], T], members: Sequence[RunningMember], what: str) -> None:
        __tracebackhide__ = True

        def probe() -> bool:
            for member in members:
                member.check()
            return bool(condition())

        def shown() -> str:
            return "; ".join(
                f"member {number} holds {sorted(each.member.held)}, has read "
                f"{ {name: len(found) for name, found in each.member.records.items()} }"
                for number, each in enumerate(members, 1)
            )

        pause, deadline = threading.Event(), time.monotonic() + self.patience.total_seconds()
        while not probe():
            if time.monotonic() >= deadline:
                violated(
                    expected=what,
                    found=f"after {self.patience.total_seconds():g} s: {shown()}",
                    mend="assign and revoke queues as the broker says, and check for its notices in each poll_group",
                )
            pause.wait(0.02)

    def _step_until(self, member: Member, condition: Callable[[], bool], what: str) -> None:
        """Let a member poll until the condition is true, at most for ``patience``."""
        __tracebackhide__ = True

        def probe() -> bool:
            member.step()
            return condition()

        self.eventually(probe, expected=what, mend="assign the queues of the group when poll_group is called")

    @staticmethod
    def _shared(members: Sequence[RunningMember], queues: Sequence[str]) -> bool:
        held = [each.member.held for each in members]
        return all(held) and sum(map(len, held)) == len(queues) and frozenset().union(*held) == set(queues)

    def _read_all(self, members: Sequence[RunningMember], queues: Sequence[str], count: int) -> bool:
        """Whether the members together have read the first ``count`` records of each queue."""
        for number, name in enumerate(queues):
            found = [record for each in members for record in each.member.records.get(name, ())]
            wanted = self.bodies(1000 * number, count)
            if found and not isinstance(found[0], bytes):
                if any(self.as_read(body) not in found for body in wanted):
                    return False
            elif not set(wanted) <= set(found):
                return False
        return True

    @staticmethod
    def _timed(call: Callable[[], Any]) -> float:
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun
