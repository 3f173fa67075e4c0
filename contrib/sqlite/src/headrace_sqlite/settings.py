"""The options of the sink, and how SQL texts write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import option
from headrace.interfaces.sink import SinkSettings
from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOptions
from headrace.interfaces.table_sink_options import ColumnNames, check_table_sink


class SQLiteSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_sqlite``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, option("table to write")]
    database: Annotated[str, option("path of the database's file, on a local disk")]
    mode: Annotated[
        Literal["insert", "upsert"],
        option(
            "what happens to a row whose key already exists: insert sends it to the dead letters, upsert updates its columns"
        ),
    ] = "insert"
    columns: ColumnNames = None
    key: Annotated[
        list[str] | None,
        option(
            "columns of the stream by which upsert finds a row, the primary key of a created table; default: the table's own"
        ),
    ] = None
    create_table: Annotated[
        bool, option("whether to create file and table, from the stream's columns, if they do not exist")
    ] = False
    offsets_table: Annotated[
        str, option("table of the same file for the positions of the queues; created on first use")
    ] = "headrace_offsets"
    lock_timeout: Annotated[timedelta, option("how long one try waits for another writer of the file")] = timedelta(
        seconds=5
    )

    def validate(self) -> None:
        check_table_sink(self, plugin="sqlite", folded=str.lower, key_of_existing=True)
        if self.database in ("", ":memory:") or "\0" in self.database:
            raise OptionError(
                f"{self.database!r} is not the path of a file", plugin="sqlite", option="database",
                hint="a database in memory would be lost when the job ends",
            )  # fmt: skip


SINK_TABLES: Mapping[str, TableOptions] = {
    "sqlite": TableOptions(
        {"table-name": "table"},
        {"sink.parallelism": OF_FLINKS_RUNTIME},
        with_key=lambda key: {"mode": "upsert", "key": list(key)},
    )
}
