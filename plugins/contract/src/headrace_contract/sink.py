"""The contract of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from headrace_contract.contract import for_each
from headrace_contract.crash import Child
from headrace_contract.sink_guarantees import SinkGuaranteeChecks
from headrace_contract.sink_use import SinkUseChecks
from headrace_contract.sink_values import SinkValueChecks
from headrace_contract.tasks import Moment, WriteTask

_MEND_CRASH = (
    "a Sink has stored its rows when batch_insert returns; an IdempotentSink keys its writes; a TransactionalSink stores "
    "rows and batch.last in one transaction, so that a crash leaves both or none"
)


class SinkContract(SinkValueChecks, SinkGuaranteeChecks, SinkUseChecks):
    """What every sink must do. An author gives ``make_sink`` and ``read_rows``; see docs/contract-suite.md.

        class TestMySink(SinkContract):
            def make_sink(self):
                return MySink(MySink.Settings.of({"path": str(self.tmp_path / "rows")}))

            def read_rows(self):
                return [json.loads(line) for line in open(self.tmp_path / "rows")]

    Which guarantee is checked follows from the sink's base class: Sink, IdempotentSink or TransactionalSink.
    """

    #: When a process that writes is killed. From its third ``batch_insert`` on, calls come after the checkpoint.
    crash_moments: ClassVar[Sequence[Moment]] = (
        Moment(1, "before"),
        Moment(1, "after"),
        Moment(3, "before"),
        *(Moment(3, "inside", fraction) for fraction in (0.05, 0.25, 0.5, 0.75, 0.95)),
        Moment(3, "after"),
    )

    @for_each("moment", "crash_moments")
    def test_kill_keeps_the_guarantee(self, moment: Moment) -> None:
        """If a process is killed at any moment of writing, no row is lost, and none is doubled if the class promises that.

        Steps: a new process gets the sink by cloudpickle and writes 20 records of two rows in calls of 5 rows, with a
        checkpoint after 5 records. It is killed (SIGKILL) at the moment of the test. Then a new sink replays in other
        batches, from that checkpoint if it was reached. Passes when a reader sees all rows, each once if the class
        promises that.
        """
        sink = self.prepared_sink(batch_size=5)
        first = self.batches("q", 0, 20, 5, rows_per_record=2)
        task = WriteTask(sink, first, moment, checkpoints=frozenset({1}))
        with self._child(task) as child:
            child.wait_until_killed(patience_seconds=self.patience.total_seconds())
        begin = 5 if moment.insert > 2 else 0
        self._write_all(self.batches("q", begin, 30 - begin, 7, rows_per_record=2), batch_size=6)
        everything = self.batches("q", 0, 30, rows_per_record=2)
        self.expect_stored(everything, once=self.exactly_once, mend=_MEND_CRASH)

    def test_kill_after_checkpoint_loses_nothing(self) -> None:
        """Rows before a checkpoint are not replayed: they must be stored even if the process is killed.

        Steps: a process writes 10 records, gets a checkpoint and is killed at once, without close; a new sink is
        prepared, opened and closed. Passes when a reader sees the rows, each once.
        """
        batches = self.batches("q", 0, 10, 5)
        task = WriteTask(self.prepared_sink(), batches, None, frozenset({2}), kill_after_checkpoint=2)
        with self._child(task) as child:
            child.wait_until_killed(patience_seconds=self.patience.total_seconds())
        sink = self.prepared_sink()
        sink.open()
        sink.close()
        self.expect_stored(batches, mend="flush and commit in batch_insert; nothing may wait for close")

    def test_paused_process_adds_nothing(self) -> None:
        """A process that was stopped while another took over its queue (a zombie) adds no rows when it continues.

        Steps: a process is stopped (SIGSTOP) before its third call; another writes the same records and more; the first
        continues to its end. Passes when a reader sees each row once. For sinks that promise exactly once.
        """
        if not self.exactly_once:
            pytest.skip("not checked: a plain Sink promises at least once")
        sink = self.prepared_sink(batch_size=5)
        task = WriteTask(sink, self.batches("q", 0, 20, 5), Moment(3, "before", action="stop"))
        with self._child(task) as child:
            child.wait_until_stopped()
            self._write_all(self.batches("q", 0, 30, 7))
            child.go_on()
            child.wait_until_done(patience_seconds=self.patience.total_seconds())
        self.expect_stored(
            self.batches("q", 0, 30),
            mend="key the writes, or compare the stored position with batch.after and raise StaleWriterError",
        )

    def _child(self, task: WriteTask) -> Child:
        return Child(task, importable=(type(task.sink), type(task.sink.settings)))
