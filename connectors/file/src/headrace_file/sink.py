"""The file sink: part files that appear whole, each row exactly once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import Position, Queue
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.directories import make_directories
from headrace.foundation.errors import JobError, RetriableError
from headrace.interfaces.codec import encodes_changes
from headrace.interfaces.sink import SinkBatch, SinkSettings, StaleWriterError, TransactionalSink

from headrace_file.encoding import PartEncoder
from headrace_file.output_record import OutputRecord
from headrace_file.partitions import check_partition_columns, directory_of, divided, folders_of, tables_above
from headrace_file.parts import HIDDEN, list_positions, part_name, queue_key
from headrace_file.queue_state import QueueState, check_writable, keys_of_temporaries, write_error
from headrace_file.settings import FileSinkSettings
from headrace_file.table_options import SINK_TABLES

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.output_definition import InputRead, OutputDefinition


class FileSink(TransactionalSink):
    """Writes each batch as one part file in a directory, together with the queue's position.

    Parts appear under their final name, whole; names sort in the order of a queue's rows. Everything else lies in the
    folder ``_headrace``, which must not be touched while a job writes. Finished parts may be moved away or removed at
    any time. See ``docs/connectors/file.md`` for what holds after crashes. May be pickled before ``open``.
    """

    Settings: ClassVar[type[SinkSettings]] = FileSinkSettings
    table_options = SINK_TABLES
    concurrent = True
    can_replace = True

    def __init__(self, settings: FileSinkSettings, *, clock: Clock | None = None) -> None:
        self.settings: FileSinkSettings = settings
        self.accepts = "changelog" if settings.changes == "column" or encodes_changes(settings.format) else "append"
        self._clock = clock
        self._schema: Schema | None = None
        self._lock = threading.Lock()
        self._queues: dict[str, _Writing] = {}
        self._listed: dict[str, Position] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_queues": {}, "_listed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def _hidden(self) -> str:
        return os.path.join(self.settings.directory, HIDDEN)

    @property
    def _writer(self) -> str:
        """The name under which positions are stored. A sink of one partition has its own name, because its parts are in
        the same directories as those of jobs that write all partitions.
        """
        writer = self.settings.writer or self.writer_name
        return f"{writer}/{directory_of(self.settings.partition)}" if self.settings.partition else writer

    # ------------------------------------------------------------------------------------------------ starting

    def check(self, schema: Schema | None) -> None:
        """Check that the format exists and takes the columns. Raises JobError."""
        check_partition_columns(self.settings.partition_by, schema)
        PartEncoder(self.settings, self._written(schema))
        self._schema = schema

    def _written(self, schema: Schema | None) -> Schema | None:
        """Return the columns that the files have: not those of the partitions."""
        if schema is None or not self.settings.partition_by:
            return schema
        return schema.part(name for name in schema if name not in self.settings.partition_by)

    def prepare(self, schema: Schema | None) -> None:
        """Create the directory, check that it can be written, and finish the commits of a killed job.

        Raises JobError when it cannot be made or written.
        """
        self._schema = schema
        self._make_folders()
        temporary = os.path.join(self._hidden, "tmp")
        try:
            left = keys_of_temporaries(temporary)
            check_writable(temporary)
        except OSError as error:
            raise self._stopping(write_error(error.filename or temporary, error)) from error
        for key in sorted(left):
            # The last part of a queue that never comes back must not stay hidden.
            self._state(key).position(None)

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        """Compare the job with the job whose rows are in the directory. Raises JobError when it is another one."""
        try:
            if output.replace:
                self._finish_commits_of_others()
            return self._record.adopt(output)
        except OSError as error:
            raise self._stopping(write_error(error.filename or self._hidden, error)) from error

    def _finish_commits_of_others(self) -> None:
        """Complete the parts that killed jobs have committed in directories that will be emptied. Raises JobError or OSError.

        Those are jobs that write the table which this is a partition of, or a partition of this table. Without it their next start
        would show these parts, with old rows, in a partition that was emptied since.
        """
        own = self.settings.directory
        for directory in (*tables_above(own), *folders_of(own)):
            try:
                left = keys_of_temporaries(os.path.join(directory, HIDDEN, "tmp"))
            except FileNotFoundError:  # nobody has written there
                continue
            for key in sorted(left):
                try:
                    self._state(key, directory).position(None)
                except RetriableError as error:
                    raise self._stopping(error) from error

    def completed(self, read: InputRead) -> None:
        """Store that all results over an input are written. Raises JobError when that is not possible."""
        try:
            self._record.completed(read)
        except OSError as error:
            raise self._stopping(write_error(error.filename or self._hidden, error)) from error

    @property
    def _record(self) -> OutputRecord:
        return OutputRecord(self.settings.directory, self._writer)

    def open(self) -> None:
        """Check that the directory exists. Raises JobError when it does not and cannot be created."""
        self._make_folders()

    def _make_folders(self) -> None:
        for folder in ("tmp", "state"):
            path = os.path.join(self._hidden, folder)
            try:
                make_directories(Path(path))
            except OSError as error:
                raise self._stopping(write_error(path, error)) from error

    @staticmethod
    def _stopping(error: JobError | RetriableError) -> JobError:
        """At the start of a job waiting does not help: a person must repair it."""
        return error if isinstance(error, JobError) else JobError(error.message, plugin="file", hint=error.hint)

    # ------------------------------------------------------------------------------------------------ writing

    def batch_insert(self, batch: SinkBatch) -> None:
        """Write the rows as a new part. Raises StaleWriterError when another writer was faster."""
        writing = self._writing(batch.queue)
        last = batch.last
        name = part_name(self.settings.prefix, batch.queue, writing.state.key, last, writing.encoder.extension)
        if self.settings.partition_by:
            parts = {os.path.join(folder, name): data for folder, data in self._divided(writing.encoder, batch)}
            stored = writing.state.commit_several(parts, batch.after, last)
        else:
            stored = writing.state.commit(writing.encoder.encode(batch), batch.after, last, name)
        if not stored:
            raise StaleWriterError(
                f"another writer has stored rows of {batch.queue.id} in {self.settings.directory} since {batch.after}",
                plugin="file",
                queue=batch.queue.id,
            )

    def check_rows(self, batch: SinkBatch) -> None:
        """Encode the rows. Raises DataError for values that the format cannot hold."""
        encoder = self._writing(batch.queue).encoder
        if self.settings.partition_by:
            for _ in self._divided(encoder, batch):
                pass
        else:
            encoder.encode(batch)

    def _divided(self, encoder: PartEncoder, batch: SinkBatch) -> Iterator[tuple[str, bytes]]:
        """Yield the directory and the file of each partition."""
        for folder, rows in divided(batch.frame, self.settings.partition_by):
            part = replace(batch, frame=rows.drop(self.settings.partition_by))
            yield folder, encoder.encode(part)

    def last_offset(self, queue: Queue) -> Position | None:
        """Return the greatest position stored for the queue: from its state file, else from the names of its parts."""
        state = self._writing(queue).state
        if state.is_known:
            return state.position(None)
        with self._lock:
            if self._listed is None:
                try:
                    self._listed = list_positions(self.settings.directory)
                except OSError as error:
                    raise write_error(self.settings.directory, error) from error
            listed = self._listed.get(state.key)
        return state.position(listed)

    def queue_removed(self, queue: Queue) -> None:
        with self._lock:
            self._queues.pop(queue.id, None)

    def close(self) -> None:
        with self._lock:
            self._queues.clear()
            self._listed = None

    def _writing(self, queue: Queue) -> _Writing:
        with self._lock:
            writing = self._queues.get(queue.id)
            if writing is None:
                state = self._state(queue_key(queue, self._writer))
                writing = self._queues[queue.id] = _Writing(
                    state, PartEncoder(self.settings, self._written(self._schema))
                )
            return writing

    def _state(self, key: str, directory: str | None = None) -> QueueState:
        """Return the state of a queue, of the job that writes to ``directory``; default: of this one."""
        settings = self.settings
        directory = directory or settings.directory
        return QueueState(
            directory,
            os.path.join(directory, HIDDEN),
            key,
            clock=self._clock or SystemClock(),
            lock_timeout=settings.lock_timeout,
            fsync=settings.fsync,
        )


class _Writing:
    """One queue as this process writes it. Calls for one queue never overlap, so each queue has its own encoder."""

    def __init__(self, state: QueueState, encoder: PartEncoder) -> None:
        self.state = state
        self.encoder = encoder
