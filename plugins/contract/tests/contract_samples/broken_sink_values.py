"""A broken sink for each check of values and columns: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace.interfaces.sink import SinkBatch

from contract_samples.broken_sink_kinds import Line, Table
from contract_samples.sinks import LineSink, TableSink


class BrokenOffByOne(Line):
    breaks = "test_all_rows_are_stored"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            lines = b""
            for begin in range(0, max(1, len(rows) - 1), 24):
                lines += super().to_lines(rows[begin : begin + 24])
            return lines


class BrokenPublishesAtClose(Line):
    thorough = True
    breaks = "test_checkpoint_stores_what_waits"

    class kind(LineSink):
        def open(self) -> None:
            self.close()

        def path(self) -> Path:
            return Path(f"{self.settings.path}.waiting")

        def close(self) -> None:
            if self.path().exists():
                with Path(self.settings.path).open("ab") as file:
                    file.write(self.path().read_bytes())
                self.path().unlink()


class BrokenRollsBack(Line):
    """Takes what was not closed for unfinished, and removes it when it is opened again."""

    breaks = "test_kill_after_checkpoint_loses_nothing"

    class kind(LineSink):
        def open(self) -> None:
            done = Path(f"{self.settings.path}.done")
            size = int(done.read_text()) if done.exists() else 0
            with self.path().open("ab") as file:
                file.truncate(size)

        def close(self) -> None:
            Path(f"{self.settings.path}.done").write_text(
                str(self.path().stat().st_size if self.path().exists() else 0)
            )


class BrokenShortRequests(Line):
    breaks = "test_full_batch_is_stored"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines(rows[:500])


class BrokenZeroForNull(Line):
    breaks = "test_null_values"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines(
                [{**row, "amount": row["amount"] or 0.0} if "amount" in row else row for row in rows]
            )


class BrokenAsciiOnly(Line):
    breaks = "test_values_of_type"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines(rows).decode().encode("ascii", "replace")


class BrokenCutsTexts(Line):
    breaks = "test_longest_text"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines([
                {name: value[:65_535] if isinstance(value, str) else value for name, value in row.items()} for row in rows
            ])  # fmt: skip


class BrokenPackedRows(Line):
    breaks = "test_rows_of_unknown_columns"

    class kind(LineSink):
        def rows_of(self, batch: SinkBatch) -> list[dict[str, Any]]:
            return batch.frame.drop("__hr_offset", "__hr_index", "__hr_time", strict=False).to_dicts()


class BrokenMuteRefusal(Table):
    breaks = "test_rows_of_unknown_columns"

    class kind(TableSink):
        def check(self, schema: Schema | None) -> None:
            if schema is None:
                raise JobError("no")
            super().check(schema)


class BrokenTakesAnyColumns(Table):
    breaks = "test_columns_are_checked"

    class kind(TableSink):
        def check(self, schema: Schema | None) -> None:
            if schema is None:
                super().check(schema)
