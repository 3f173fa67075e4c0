"""Values as SQL text: the server reads back exactly what was meant, whatever is in it."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.foundation.errors import DataError, JobError
from headrace_mysql.literals import checked_escapes, row_texts, statements
from headrace_mysql.tables import TableColumn
from mysql_world import Database

ANY = TableColumn("c", "longtext", "longtext")


def texts(values: list[Any], kind: pl.DataType, column: TableColumn = ANY) -> list[str]:
    return row_texts(pl.DataFrame({"c": pl.Series(values, dtype=kind)}), {"c": column}).to_list()


class TestTexts:
    def test_quotes_and_backslashes(self) -> None:
        assert texts(["it's", "a\\", "\\'", None, "NULL"], pl.String()) == [
            "('it\\'s')", "('a\\\\')", "('\\\\\\'')", "(NULL)", "('NULL')",
        ]  # fmt: skip

    def test_numbers(self) -> None:
        assert texts([1, None, -(2**63)], pl.Int64()) == ["(1)", "(NULL)", f"({-(2**63)})"]
        assert texts([True, False, None], pl.Boolean()) == ["(1)", "(0)", "(NULL)"]
        assert texts([Decimal("0.000000000000000001"), Decimal(-1)], pl.Decimal(38, 18)) == [
            "(0.000000000000000001)", "(-1.000000000000000000)",
        ]  # fmt: skip

    def test_nan_and_infinities_are_null(self) -> None:
        values = [float("nan"), float("inf"), float("-inf"), 1.5, 1e300]
        assert texts(values, pl.Float64()) == ["(NULL)", "(NULL)", "(NULL)", "(1.5e0)", "(1e+300)"]

    def test_instants_are_utc(self) -> None:
        tokyo = dt.datetime(2024, 1, 1, 8, 0, 0, 5)
        values = pl.Series("c", [tokyo]).dt.replace_time_zone("Asia/Tokyo")
        [text] = row_texts(pl.DataFrame({"c": values}), {"c": ANY}).to_list()
        assert text == "('2023-12-31 23:00:00.000005')"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (dt.timedelta(0), "('00:00:00.000000')"),
            (dt.timedelta(microseconds=-1), "('-00:00:00.000001')"),
            (dt.timedelta(days=-2, hours=3, minutes=1), "('-44:59:00.000000')"),
            (dt.timedelta(hours=838, minutes=59, seconds=59), "('838:59:59.000000')"),
        ],
    )
    def test_durations_in_a_time_column(self, value: dt.timedelta, text: str) -> None:
        assert texts([value], pl.Duration("us"), TableColumn("c", "time", "time(6)")) == [text]

    def test_a_type_without_text_is_refused(self) -> None:
        with pytest.raises(DataError, match="cannot be written to MySQL"):
            texts([object()], pl.Object())

    def test_a_session_that_takes_backslashes_literally_stops_the_job(self) -> None:
        checked_escapes(2)
        with pytest.raises(JobError, match="NO_BACKSLASH_ESCAPES"):
            checked_escapes(2 | 512)


class TestStatements:
    def test_they_are_cut_by_size_and_hold_every_row_once(self) -> None:
        rows = pl.Series([f"({'x' * (n % 40)})" for n in range(1000)])
        for size in (60, 61, 200, 5000, 10**6):
            made = list(statements("INSERT ", rows, " END", size, 10**7))
            assert all(len(text) <= size for text in made)
            assert ",".join(text[7:-4] for text in made) == ",".join(rows)

    def test_sizes_are_bytes(self) -> None:
        rows = pl.Series(["('漢漢漢')"] * 10)
        assert all(len(text.encode()) <= 50 for text in statements("I ", rows, "", 50, 10**6))

    def test_a_row_larger_than_a_statement_has_one_of_its_own(self) -> None:
        rows = pl.Series(["(1)", f"({'9' * 100})", "(2)"])
        assert [len(text) for text in statements("", rows, "", 50, 1000)] == [3, 102, 3]

    def test_a_row_larger_than_a_packet_is_the_rows_fault(self) -> None:
        with pytest.raises(DataError, match="max_allowed_packet"):
            list(statements("", pl.Series(["(1)", f"({'9' * 100})"]), "", 50, 60))


def test_the_server_reads_back_random_texts(database: Database) -> None:
    """Texts of the characters that mean something to the server, in all orders: what comes back is what was sent."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    alphabet = "'\"\\\0\n\r\x1a%_`;-/*# ab0漢🙂\u0301"
    strings = ["".join(chance.choices(alphabet, k=chance.randrange(12))) for _ in range(3000)]
    blobs = [chance.randbytes(chance.randrange(12)) for _ in range(3000)]
    floats = [chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300) for _ in range(3000)]
    database.execute("CREATE TABLE t (id INT, s LONGTEXT COLLATE utf8mb4_bin, b LONGBLOB, f DOUBLE)")
    schema = {"id": "int64", "s": "string", "b": "binary", "f": "float64"}
    sink = database.sink({**schema, "id": "int32"})
    frame = pl.DataFrame({"id": range(3000), "s": strings, "b": blobs, "f": floats})
    from headrace.flow.messages import INDEX, OFFSET, Queue
    from headrace.interfaces.sink import SinkBatch

    header = [pl.Series(OFFSET, range(3000), dtype=pl.Int64), pl.Series(INDEX, [0] * 3000, dtype=pl.Int32)]
    sink.batch_insert(SinkBatch(Queue("q"), frame.with_columns(pl.col("id").cast(pl.Int32), *header)))
    sink.close()
    found = database.execute("SELECT s, b, f FROM t ORDER BY id")
    assert found == list(zip(strings, blobs, floats, strict=True)), f"seed {seed}"
