"""Statements that change the table while it is followed: added and dropped columns are understood, others stop with the reason."""

from __future__ import annotations

import pytest
from changes_world import changes_in, latest, opened
from headrace.foundation.errors import JobError
from headrace_mysql.binlog.schema_changes import SchemaChanges
from headrace_mysql.tables import TableColumn
from mysql_world import Database

from tests.change_readers import SECOND, read_to_end


def followed(statement: str, *, database: str = "shop", ignore_truncate: bool = False) -> list[str]:
    """Return the columns of shop.t, which are a, b and c, after a statement."""
    changes = SchemaChanges(
        "shop", "t", lambda name: TableColumn(name, "int", "int(11)"), ignore_truncate=ignore_truncate
    )
    columns = tuple(TableColumn(name, "int", "int(11)") for name in "abc")
    return [column.name for column in changes.after(database, statement, columns)]


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("ALTER TABLE t ADD COLUMN d INT", "abcd"),
        ("alter table t add d int", "abcd"),
        ("ALTER TABLE t ADD d INT FIRST", "dabc"),
        ("ALTER TABLE t ADD d DECIMAL(9,2) DEFAULT 1.5 COMMENT 'x, FIRST' AFTER a", "adbc"),
        ("ALTER TABLE `t` ADD `d` ENUM('x','AFTER b') AFTER `B`", "abdc"),
        ("ALTER TABLE shop.t ADD d INT, ADD COLUMN e INT AFTER d, DROP b", "acde"),
        ("ALTER TABLE t ADD (d INT, e VARCHAR(9) NOT NULL, KEY (d))", "abcde"),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT", "abc"),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS d INT", "abcd"),
        ("ALTER ONLINE TABLE t DROP COLUMN c", "ab"),
        ("ALTER TABLE IF EXISTS t DROP COLUMN IF EXISTS B", "ac"),
        ("ALTER TABLE t DROP COLUMN `a`, ALGORITHM=INPLACE, LOCK=NONE", "bc"),
        ("ALTER TABLE t ADD INDEX (a), ADD UNIQUE KEY u (b), ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES o (a)", "abc"),
        ("ALTER TABLE t ADD PRIMARY KEY (a), DROP PRIMARY KEY, DROP INDEX u, DROP FOREIGN KEY f", "abc"),
        ("ALTER TABLE t ENGINE=InnoDB, COMMENT = 'MODIFY a', AUTO_INCREMENT = 5, ROW_FORMAT = DYNAMIC", "abc"),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 5, ALTER b DROP DEFAULT", "abc"),
        ("ALTER TABLE t /* MODIFY a TEXT */ ADD d INT -- , DROP a", "abcd"),
        ("ALTER TABLE t ADD `key` INT, DROP `a`", "bckey"),
        ("ALTER TABLE t ADD (`index` INT, INDEX (a))", "abcindex"),
        ("ALTER TABLE t NOWAIT ADD d INT", "abcd"),
        ("ALTER TABLE t WAIT 5 DROP COLUMN a", "bc"),
        ("ALTER TABLE t ALTER `check` SET DEFAULT 5", "abc"),
        ("ALTER TABLE other ADD COLUMN d INT, ADD t INT", "abc"),
        ("ALTER TABLE elsewhere.t DROP COLUMN a", "abc"),
        ("CREATE INDEX i ON t (a)", "abc"),
        ("ANALYZE TABLE t", "abc"),
        ("GRANT SELECT ON shop.t TO u", "abc"),
        ("CREATE TABLE x LIKE t", "abc"),
        ("DROP TABLE other, elsewhere.t", "abc"),
        ("DROP DATABASE other", "abc"),
        ("TRUNCATE TABLE elsewhere.t", "abc"),
    ],
)
def test_understood(statement: str, columns: str) -> None:
    assert "".join(followed(statement)) == columns


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t MODIFY a BIGINT",
        "ALTER TABLE t CHANGE a x INT",
        "ALTER TABLE t RENAME COLUMN a TO x",
        "ALTER TABLE t RENAME TO x",
        "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE t ADD d INT, MODIFY COLUMN a TEXT FIRST",
        "ALTER TABLE t DROP PARTITION p",
        "ALTER TABLE t TRUNCATE PARTITION p",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x",
        "ALTER TABLE t DISCARD TABLESPACE",
        "ALTER TABLE t ADD SYSTEM VERSIONING",
        "TRUNCATE t",
        "TRUNCATE TABLE `shop`.`t`",
        "DROP TABLE IF EXISTS other, t",
        "DROP DATABASE shop",
        "DROP SCHEMA IF EXISTS shop",
        "/* ApplicationName=a client */ DROP DATABASE shop",
        "-- everything\nDROP DATABASE Shop",
        "ALTER TABLE t NOWAIT MODIFY a BIGINT",
        "ALTER TABLE t WAIT 5 RENAME COLUMN a TO x",
        "ALTER TABLE t ADD d INT AFTER z",
        "RENAME TABLE other TO x, t TO y",
        "RENAME TABLE x TO t",
        "CREATE OR REPLACE TABLE t (a INT)",
    ],
)
def test_refused(statement: str) -> None:
    with pytest.raises(JobError, match="new checkpoint") as refused:
        followed(statement)
    assert statement in str(refused.value)


def test_a_name_with_a_backtick_is_known_in_its_quotes() -> None:
    changes = SchemaChanges("shop", "a`b", lambda name: None, ignore_truncate=False)
    columns = (TableColumn("x", "int", "int(11)"), TableColumn("y", "int", "int(11)"))
    assert changes.after("shop", "ALTER TABLE `a``b` DROP COLUMN x", columns) == columns[1:]


def test_truncate_can_be_passed_over() -> None:
    assert followed("TRUNCATE TABLE t", ignore_truncate=True) == ["a", "b", "c"]


def test_added_and_dropped_columns_of_a_table_that_is_read(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT UNSIGNED, b TEXT) ENGINE = InnoDB")
    begin = latest(logged)
    with opened(logged, begin) as reader:
        logged.execute("INSERT INTO t VALUES (1, 4000000000, 'one')")
        logged.execute("ALTER TABLE t ADD COLUMN c DATE FIRST")
        logged.execute("INSERT INTO t VALUES ('2024-01-01', 2, 4000000000, 'two')")
        logged.execute("ALTER TABLE t DROP COLUMN a, ADD COLUMN d INT AFTER c")
        logged.execute("INSERT INTO t VALUES ('2024-01-01', 5, 3, 'three')")
        whole = changes_in(read_to_end(reader))
        middle = reader.position
    assert whole == [(0, 1, 4000000000, "one"), (0, 2, 4000000000, "two"), (0, 3, None, "three")]
    logged.execute("INSERT INTO t VALUES ('2024-01-02', 6, 4, 'four')")
    with opened(logged, middle) as reader:
        # A job that is built now has the columns that the table has now; those that it had not before are NULL before.
        assert [row[2:4] for row in changes_in(read_to_end(reader))] == [(6, 4)]
    with opened(logged, begin) as reader:
        rows = changes_in(read_to_end(reader))
    assert [row[2] for row in rows] == [None, None, 5, 6], "column d"
    assert [row[3] for row in rows] == [1, 2, 3, 4], "column id"
    assert [row[4] for row in rows] == ["one", "two", "three", "four"], "column b"


def test_every_place_within_changes_of_the_table_can_be_continued(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE = InnoDB")
    begin = latest(logged)
    for number in range(4):
        logged.execute(
            f"INSERT INTO t (id, a) VALUES ({3 * number}, {number}), ({3 * number + 1}, 0), ({3 * number + 2}, 0)"  # noqa: S608
        )
        logged.execute(f"ALTER TABLE t ADD COLUMN c{number} INT DEFAULT {number} FIRST")
    options = {"columns": ["id", "a"]}
    with opened(logged, begin, **options) as reader:
        whole = changes_in(read_to_end(reader, per_poll=1))
        assert len(whole) == 12
        reader.seek(begin)
        for count in range(13):
            with opened(logged, reader.position, **options) as other:
                assert changes_in(read_to_end(other)) == whole[count:]
            if count < 12:
                before = reader.position
                while (raw := reader.poll(1, SECOND)) is None or not len(raw):
                    assert reader.position != before or raw is None


def test_another_change_stops_with_the_rows_before_it_given(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE = InnoDB")
    begin = latest(logged)
    logged.execute("INSERT INTO t VALUES (1, 1)")
    logged.execute("ALTER TABLE t MODIFY a BIGINT")
    logged.execute("INSERT INTO t VALUES (2, 2)")
    with opened(logged, begin) as reader:
        raw = None
        while raw is None or not len(raw):
            raw = reader.poll(10, SECOND)
        rows = changes_in([raw])
        with pytest.raises(JobError, match="MODIFY"):
            read_to_end(reader)
        assert rows == [(0, 1, 1)]
        with pytest.raises(JobError, match="MODIFY"):
            reader.poll(10, SECOND)


def test_a_change_without_a_trace_in_the_log_is_noticed(logged: Database) -> None:
    logged.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE = InnoDB")
    begin = latest(logged)
    logged.execute("SET sql_log_bin = 0")
    logged.execute("ALTER TABLE t MODIFY a VARCHAR(20)")
    logged.execute("SET sql_log_bin = 1")
    logged.execute("INSERT INTO t VALUES (1, 'x')")
    with opened(logged, begin) as reader, pytest.raises(JobError, match="another type"):
        read_to_end(reader)
