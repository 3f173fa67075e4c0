"""Which test runs in which process of ``pytest -n``, where each has read other tests: those that it has read, file by file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from execnet import XSpec
from xdist.workermanage import WorkerController

#: A process always has so many tests to run that it need not wait for more: the one that runs, and one after it.
_WAITING_MIN = 2


class _Part:
    """The tests of one process, or of the ones that replace it."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = tests
        #: Numbers of tests by file that no process was told of; numbers of those that one was told of and has not run.
        self.files = [
            list(numbers) for _, numbers in groupby(range(len(tests)), key=lambda number: _file(tests[number]))
        ]
        self.told: list[int] = []

    @property
    def is_done(self) -> bool:
        return not self.files and not self.told


def _file(test: str) -> str:
    return test.partition("::")[0]


class PartsScheduling:
    """A scheduler of xdist, as its ``Scheduling`` describes it. Called by the process that starts the others.

    A process begins as soon as it has read its tests. It is told of one file after the other, so that a run that is to stop (``-x``)
    stops soon.
    """

    def __init__(self, specs: Sequence[object]) -> None:
        self._processes_count = len(specs)
        self._parts: dict[WorkerController, _Part | None] = {}
        #: Of processes that have crashed, by what their replacement has too.
        self._left: list[tuple[XSpec, _Part]] = []
        self._has_read = 0
        #: How many tests there are.
        self.count = 0

    @property
    def nodes(self) -> list[WorkerController]:
        """All processes that run."""
        return list(self._parts)

    @property
    def collection_is_completed(self) -> bool:
        """Whether each process has read its tests."""
        return self._has_read >= self._processes_count

    @property
    def tests_finished(self) -> bool:
        """Whether all tests have run. Then xdist ends the processes."""
        return self.collection_is_completed and not self.has_pending and None not in self._parts.values()

    @property
    def has_pending(self) -> bool:
        """Whether there are tests that have not run."""
        parts = [*self._parts.values(), *(part for _, part in self._left)]
        return any(part is not None and not part.is_done for part in parts)

    def add_node(self, node: WorkerController) -> None:
        """A process has started, and reads its tests."""
        self._parts[node] = None

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """A process has read its tests. One that replaces another one gets those that are left."""
        of_same = [each for each in self._left if each[0] is node.gateway.spec]
        if not of_same:
            self._has_read += 1
            self.count += len(collection)
            self._parts[node] = _Part(collection)
        else:
            self._left.remove(of_same[0])
            part = of_same[0][1]
            if list(collection) != list(part.tests):
                raise RuntimeError("a process that replaces a crashed one has read other tests than that one")
            self._parts[node] = part
        self._tell(node)

    def schedule(self) -> None:
        """Nothing more: each process was told what to run when it had read its tests."""

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """A process has run a test."""
        part = self._parts[node]
        assert part is not None
        part.told.remove(item_index)
        self._tell(node)

    def mark_test_pending(self, item: str) -> None:
        """Never called: it is for plug-ins that run tests again."""
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> None:
        """Never called: no process gives tests to another one."""
        raise NotImplementedError

    def remove_node(self, node: WorkerController) -> str | None:
        """A process has ended. Return the test in which it has crashed, if it has; what is left is for the process that replaces it."""
        part = self._parts.pop(node)
        if part is None:
            return None
        crashed = part.told.pop(0) if part.told else None
        if part.told:
            part.files.insert(0, part.told)
            part.told = []
        self._left.append((node.gateway.spec, part))
        return None if crashed is None else part.tests[crashed]

    def _tell(self, node: WorkerController) -> None:
        part = self._parts[node]
        assert part is not None
        if node.shutting_down:
            return
        while part.files and len(part.told) < _WAITING_MIN:
            numbers = part.files.pop(0)
            part.told += numbers
            node.send_runtest_some(numbers)
        if not part.files:
            node.shutdown()  # as soon as it has run what it was told of
