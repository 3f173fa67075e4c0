"""The source: ranges of keys that stay where they are, and rows that are committed out of order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError, JobError, JobFailedError
from headrace.interfaces.source import LATEST, Reader
from headrace.testing import MemorySink
from mysql_world import Database

ZERO = timedelta(0)


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40))")
    return database


def add(database: Database, *keys: int) -> None:
    for key in keys:
        database.execute("INSERT INTO t (id, name) VALUES (%s, %s)", (key, f"n{key}"))


def offsets(reader: Reader, count: int = 1000) -> list[int]:
    raw = reader.poll(count, ZERO)
    return [] if raw is None else raw.offsets.tolist()


def read_all(database: Database, **options: Any) -> dict[str, list[int]]:
    """Return the keys that each queue gives."""
    source = database.source(**options)
    found = {}
    for queue in source.queues():
        reader = source.open(queue, hr.EARLIEST)
        keys: list[int] = []
        while raw := reader.poll(3, ZERO):
            assert raw.frame is not None
            keys += [int(key) for key in raw.frame["id"]]
        assert reader.position.offset >= reader.latest
        reader.close()
        found[queue.name] = keys
    return found


class TestScan:
    def test_ranges_keep_their_names_when_the_table_grows(self, table: Database) -> None:
        add(table, 5, 9, 10, 31)
        first = read_all(table, range_size=10)
        assert first == {"t[0,10)": [5, 9], "t[10,20)": [10], "t[20,30)": [], "t[30,40)": [31]}
        add(table, -1, 32, 40)
        assert read_all(table, range_size=10) == {**first, "t[-10,0)": [-1], "t[30,40)": [31, 32], "t[40,50)": [40]}

    def test_an_empty_table_has_no_queues(self, table: Database) -> None:
        assert read_all(table) == {}

    def test_negative_keys_count_from_the_begin_of_their_range(self, table: Database) -> None:
        add(table, -(2**63), -(2**63) + 1)
        source = table.source(range_size=2**62)
        [queue] = source.queues()
        assert queue.name == f"t[{-(2**63)},{-(2**62)})"
        reader = source.open(queue, hr.EARLIEST)
        assert offsets(reader) == [0, 1]
        assert (reader.earliest, reader.latest, reader.position.offset) == (0, 2, 2)
        reader.close()

    def test_huge_keys(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)")
        keys = [0, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1]
        for key in keys:
            database.execute("INSERT INTO t VALUES (%s)", (key,))
        found = read_all(database, range_size=2**62)
        assert sorted(key for some in found.values() for key in some) == keys
        assert len(found) == 4

    def test_rows_that_come_while_it_is_read_are_for_the_next_run(self, table: Database, tmp_path: Path) -> None:
        add(table, 1, 2)
        sink = MemorySink()
        job = hr.stream("test", "scan").from_mysql(**table.options(range_size=10)).to(sink)
        options = {"checkpoint": str(tmp_path), "show_progress": False}
        job.run("light", **options)
        add(table, 3, 25)
        job.run("light", **options)
        assert [row["id"] for row in sink.rows] == [1, 2, 3, 25]

    def test_rows_deleted_while_it_is_read_do_not_hold_it_up(self, table: Database) -> None:
        add(table, 1, 2, 3)
        source = table.source()
        reader = source.open(Queue("t[0,1000000)"), hr.EARLIEST)
        end = reader.latest
        assert offsets(reader, 1) == [1]
        table.execute("DELETE FROM t")
        assert offsets(reader) == []
        assert reader.position.offset == end == 4
        reader.close()

    def test_too_many_ranges(self, table: Database) -> None:
        add(table, 1, 10**15)
        with pytest.raises(JobError) as caught:
            table.source().queues()
        assert str(caught.value) == (
            f"the keys 1 to {10**15} of table {table.name}.t make 1,000,000,001 ranges [plugin 'mysql', option"
            " 'range_size']\n  hint: range_size=10000000000000 makes about 100"
        )
        assert sum(len(keys) for keys in read_all(table, range_size=10**13).values()) == 2

    def test_another_range_size_does_not_go_with_the_checkpoint(self, table: Database, tmp_path: Path) -> None:
        add(table, 1, 2)
        options = {"checkpoint": str(tmp_path), "show_progress": False}
        hr.stream("test", "scan").from_mysql(**table.options(range_size=10)).to(MemorySink()).run("light", **options)
        with pytest.raises(JobError, match=r"the checkpoint has the range 't\[0,10\)', whose size is not 20") as caught:
            hr.stream("test", "scan").from_mysql(**table.options(range_size=20)).to(MemorySink()).run(
                "light", **options
            )
        assert "set range_size=10 as before" in str(caught.value)

    def test_a_start_by_time_is_refused(self, table: Database) -> None:
        from datetime import UTC, datetime

        from headrace.interfaces.source import StartAt

        with pytest.raises(JobError, match="rows of a table have no time, so a time cannot be the start"):
            table.source().open(Queue("t[0,1000000)"), StartAt(datetime.now(UTC)))


class TestKeys:
    @pytest.mark.parametrize(
        ("declared", "options", "problem", "hint"),
        [
            ("a INT, b INT, PRIMARY KEY (a, b)", {}, "its primary key is a, b together", "add one, such as"),
            ("a VARCHAR(9) PRIMARY KEY, n INT NOT NULL UNIQUE", {}, "'a' is VARCHAR(9), no integer", "key='n' is one"),
            ("a INT", {}, "its primary key is not there", "add one, such as"),
            ("a INT", {"key": "a"}, "'a' is not declared both unique and NOT NULL", "add one, such as"),
            ("a INT UNIQUE", {"key": "a"}, "'a' is not declared both unique and NOT NULL", "add one, such as"),
            ("a INT NOT NULL, KEY (a)", {"key": "a"}, "'a' is not declared both unique and NOT NULL", "add one"),
            ("a INT NOT NULL, b INT NOT NULL, UNIQUE (a, b)", {"key": "a"}, "'a' is not declared both", "add one"),
            ("first_id INT PRIMARY KEY", {"key": "frst_id"}, "it has no column 'frst_id'", "did you mean 'first_id'?"),
            ("a INT PRIMARY KEY", {"columns": ["a", "bb"]}, "it has no column 'bb'", "columns of the table: a"),
        ],
    )  # fmt: skip
    def test_refused(self, database: Database, declared: str, options: Any, problem: str, hint: str) -> None:
        database.execute(f"CREATE TABLE t ({declared})")
        with pytest.raises(JobError) as caught:
            database.source(**options).schema()
        text = str(caught.value)
        assert f"table {database.name}.t: {problem}" in text
        assert f"[plugin 'mysql', option '{'columns' if 'columns' in options else 'key'}']" in text
        assert hint in text.partition("hint: ")[2]

    def test_another_unique_column(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id VARCHAR(5) PRIMARY KEY, n INT NOT NULL UNIQUE)")
        database.execute("INSERT INTO t VALUES ('30', 7), ('10', 8), ('20', 3)")
        assert read_all(database, key="n", range_size=10) == {"t[0,10)": [20, 30, 10]}

    def test_missing_table(self, database: Database) -> None:
        database.execute("CREATE TABLE events (id INT PRIMARY KEY)")
        with pytest.raises(JobError, match="there is no table 'evnts'") as caught:
            database.source(table="evnts").schema()
        assert "hint: did you mean 'events'?" in str(caught.value)

    def test_columns_are_chosen_when_the_job_is_built(self, table: Database) -> None:
        stream = hr.stream("test", "columns").from_mysql(**table.options(columns=["name"]))
        assert stream.schema is not None
        assert list(stream.schema) == ["name"]


class TestPoll:
    def test_a_row_waits_for_smaller_keys_that_are_not_committed(self, table: Database) -> None:
        clock = ManualClock()
        source = table.source(mode="poll", settle="2 s", clock=clock)
        reader = source.open(Queue("t"), hr.EARLIEST)
        other = table.connect()
        other.begin()
        with other.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (NULL, 'late')")  # takes key 1
        table.execute("INSERT INTO t VALUES (NULL, 'early')")  # takes key 2, and is seen at once
        assert offsets(reader) == []
        clock.advance(1.9)
        assert offsets(reader) == []
        other.commit()
        other.close()
        clock.advance(0.2)
        assert offsets(reader) == [1, 2]
        assert reader.position.offset == 3
        reader.close()

    def test_without_settling_such_a_row_is_lost(self, table: Database) -> None:
        """Why `settle` is there."""
        reader = table.source(mode="poll", settle="0 s").open(Queue("t"), hr.EARLIEST)
        other = table.connect()
        other.begin()
        with other.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (NULL, 'late')")
        table.execute("INSERT INTO t VALUES (NULL, 'early')")
        assert offsets(reader) == [2]
        other.commit()
        other.close()
        assert offsets(reader) == []
        reader.close()

    def test_each_row_settles_from_when_it_was_seen(self, table: Database) -> None:
        clock = ManualClock()
        reader = table.source(mode="poll", settle="1 s", clock=clock).open(Queue("t"), hr.EARLIEST)
        found = []
        for key in range(1, 6):
            add(table, key)
            found.append(offsets(reader))
            clock.advance(0.4)
        found += [offsets(reader)]
        clock.advance(1)
        found += [offsets(reader)]
        assert found == [[], [], [], [1], [2], [3], [4, 5]]
        reader.close()

    def test_latest_counts_rows_that_have_not_settled(self, table: Database) -> None:
        """A bounded run and the lag want to know what is there, not what may be read already."""
        clock = ManualClock()
        add(table, 1, 2)
        reader = table.source(mode="poll", clock=clock).open(Queue("t"), hr.EARLIEST)
        assert (reader.latest, offsets(reader), reader.position_after(10).offset) == (3, [], 0)
        clock.advance(1)
        assert (reader.position_after(1).offset, offsets(reader)) == (2, [1, 2])
        reader.close()

    def test_latest_start_leaves_out_what_is_there(self, table: Database) -> None:
        add(table, 1, 2)
        reader = table.source(mode="poll", settle="0 s").open(Queue("t"), LATEST)
        add(table, 5)
        assert offsets(reader) == [5]
        reader.close()

    def test_a_waiting_poll_returns_when_rows_have_settled(self, table: Database) -> None:
        clock = ManualClock()
        add(table, 1)
        reader = table.source(mode="poll", settle="300 ms", clock=clock).open(Queue("t"), hr.EARLIEST)
        raw = reader.poll(10, timedelta(seconds=10))
        assert raw is not None
        assert raw.offsets.tolist() == [1]
        assert clock.monotonic() < 1
        reader.close()

    def test_gaps_and_deleted_rows(self, table: Database) -> None:
        reader = table.source(mode="poll", settle="0 s").open(Queue("t"), hr.EARLIEST)
        add(table, 3, 1000, 10**12)
        assert offsets(reader, 2) == [3, 1000]
        table.execute("DELETE FROM t")
        add(table, 10**12 + 5)
        assert offsets(reader) == [10**12 + 5]
        reader.close()

    def test_a_table_that_was_emptied_of_what_was_read(self, table: Database) -> None:
        """Rows are often deleted once they are done: the position stays good, unlike after TRUNCATE."""
        add(table, 1, 2, 3)
        source = table.source(mode="poll", settle="0 s")
        table.execute("DELETE FROM t")
        source.open(Queue("t"), ReadPosition(4)).close()
        table.execute("TRUNCATE t")
        with pytest.raises(DataError) as caught:
            source.open(Queue("t"), ReadPosition(4))
        assert str(caught.value) == (
            "position 4 is greater than 1, the position of the table's next row: the table was emptied or recreated"
            " [plugin 'mysql', queue 't', offset 4]\n  hint: start with a new checkpoint to read it from its beginning"
        )

    def test_negative_keys_are_refused(self, table: Database) -> None:
        add(table, -5)
        with pytest.raises(JobError, match="has the key -5"):
            table.source(mode="poll").open(Queue("t"), hr.EARLIEST)

    def test_keys_that_are_too_large_are_refused(self, database: Database) -> None:
        database.execute("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)")
        database.execute("INSERT INTO t VALUES (18446744073709551615)")
        reader = database.source(mode="poll").open(Queue("t"), hr.EARLIEST)
        with pytest.raises(JobError, match="is too large to be an offset"):
            reader.poll(1, ZERO)
        reader.close()

    def test_a_bounded_run_ends_with_what_was_there(self, table: Database, tmp_path: Path) -> None:
        add(table, 1, 2, 7)
        sink = MemorySink()
        job = hr.stream("test", "poll").from_mysql(**table.options(mode="poll", settle="50 ms")).to(sink)
        for _ in range(2):
            job.run("light", until="end", checkpoint=str(tmp_path), show_progress=False)
        assert [row["id"] for row in sink.rows] == [1, 2, 7]

    def test_a_truncated_table_fails_the_job(self, table: Database, tmp_path: Path) -> None:
        add(table, 1, 2, 7)
        job = hr.stream("test", "poll").from_mysql(**table.options(mode="poll", settle="0 s")).to(MemorySink())
        options = {"until": "end", "checkpoint": str(tmp_path), "show_progress": False}
        job.run("light", **options)
        table.execute("TRUNCATE t")
        with pytest.raises((DataError, JobFailedError), match="the table was emptied or recreated"):
            job.run("light", **options)
