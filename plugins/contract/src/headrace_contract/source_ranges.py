"""Checks of a source: ranges of a queue, which are planned or skipped here and read by another process."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.interfaces.source import EARLIEST, Source

from headrace_contract.contract import expect, violated
from headrace_contract.source_harness import Reading, SourceHarness, as_checkpointed

_ZERO = timedelta(0)


class SourceRangeChecks(SourceHarness):
    """What a range of a queue is, and that a copy of the source reads it."""

    def test_position_after(self) -> None:
        """``position_after`` is where a read would end, so that a planner can divide a queue into ranges without reading.

        Steps: from several positions ask for 1, 5, 7 and a million records; read the range, and open at its end. Passes when
        the range has at most so many records, no record is missing or doubled, and the call has not moved the reader.
        """
        name = self.filled_queue(30)
        mend = "override position_after if positions need a hint, and do not move the reader in it"
        for begin, count in ((0, 1), (0, 7), (12, 7), (29, 7), (3, 1_000_000), (30, 5)):
            with self.opened(name) as reader:
                before = self.read(reader, begin)
                start, cut = reader.position, as_checkpointed(reader.position_after(count))
                expect(
                    reader.position == start,
                    expected=f"position {start}, as before the call",
                    found=str(reader.position),
                    mend=mend,
                )
                ranged = Reading()
                while reader.position.offset < cut.offset:
                    part = self.read(reader, 1)
                    if part.offsets[0] < cut.offset:  # the range may end between two records
                        ranged.offsets += part.offsets
                        ranged.records += part.records
                moves = cut.offset > start.offset or begin == 30
                expect(
                    len(ranged) <= count and moves and cut.offset <= reader.latest,
                    expected=f"a position with at most {count} records from record {begin} on, after {start}, and not after latest",
                    found=f"{cut}: {len(ranged)} records; latest {reader.latest}",
                    mend=mend,
                )
            with self.opened(name, cut) as reader:
                after = self.read_to_end(reader)
            self.expect_bodies(
                before.records + ranged.records + after.records, self.bodies(0, 30), what=f"cut at {cut}", mend=mend
            )

    def test_ranges_that_another_process_reads(self) -> None:
        """``skip_range`` goes on behind a range, which a copy of the source reads (sources with ``read_by_workers``).

        Steps: of 300 records let ranges of at most 7, 40 and 100 be skipped; where the reader says None, poll one batch. Read each range
        by a pickled copy of the source, as worker processes do. Passes when ranges and batches together are the 300 records in their
        order, and each read ends at the position that ``skip_range`` has told.
        """
        name = self.filled_queue(300)
        mend = "return the position that a reader with limit() has at the end of the range, and move this reader there"
        with self.source() as source:
            if not source.read_by_workers:
                pytest.skip("read_by_workers is False")
            queue = self.queue(source, name)
            reader, records = source.open(queue, EARLIEST), list[Any]()
            for most in itertools.cycle((7, 40, 100)):
                if len(records) >= 300:
                    break
                start, end = as_checkpointed(reader.position), reader.skip_range(most)
                if end is None:
                    records += self.read(reader, 1, per_poll=most).records
                    continue
                expect(
                    start.offset < end.offset and reader.position == end,
                    expected=f"a position behind {start}, where the reader stands then",
                    found=f"{end}; the reader stands at {reader.position}",
                    mend=mend,
                )
                ranged = self._read_by_copy(source, queue, start, as_checkpointed(end), mend)
                expect(len(ranged) <= most, expected=f"at most {most} records", found=f"{len(ranged)}", mend=mend)
                records += ranged.records
            reader.close()
        self.expect_bodies(records, self.bodies(0, 300), what="ranges", mend=mend)

    def _read_by_copy(self, source: Source, queue: Queue, start: ReadPosition, end: ReadPosition, mend: str) -> Reading:
        copy: Source = cloudpickle.loads(cloudpickle.dumps(source))
        copy.use_run(until="end")
        reader, ranged = copy.open(queue, start), Reading()
        reader.limit(end)
        while reader.position.offset < end.offset:
            raw = reader.poll(end.offset - reader.position.offset, _ZERO)
            if raw is None:
                violated(expected=f"records up to {end}", found=f"None at {reader.position}", mend=mend)
            ranged.add(raw)
        expect(reader.position == end, expected=f"position {end}", found=str(reader.position), mend=mend)
        reader.close()
        copy.close()
        return ranged
