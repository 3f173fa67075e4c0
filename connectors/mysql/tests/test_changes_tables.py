"""Kinds of tables and of transactions: what the log gives makes the table, and so does a snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from changes_world import applied, changes_in, changes_of, latest, opened, table_of
from headrace.flow.messages import Queue
from headrace.foundation.errors import JobError
from headrace.interfaces.source import EARLIEST
from mysql_world import Database

from tests.change_readers import read_to_end

PLAIN = "id INT PRIMARY KEY, a INT"
CASES: dict[str, tuple[str, Sequence[str]]] = {
    "generated": (
        "id INT PRIMARY KEY, a INT, b INT AS (a + 1) VIRTUAL, c INT AS (a * 2) STORED, d INT",
        ["INSERT INTO t (id, a, d) VALUES (1, 2, 3)", "UPDATE t SET a = 5"],
    ),
    "partitions": (
        f"{PLAIN}) PARTITION BY HASH(id) PARTITIONS (4",
        ["INSERT INTO t VALUES (1, 3), (2, 4)", "UPDATE t SET a = 5, id = id + 10"],
    ),
    "savepoints": (
        PLAIN,
        ["BEGIN", "INSERT INTO t VALUES (1, 3)", "SAVEPOINT x", "INSERT INTO t VALUES (2, 3)", "ROLLBACK TO x",
         "INSERT INTO t VALUES (3, 3)", "COMMIT"],
    ),
    "upserts": (
        PLAIN,
        ["INSERT INTO t VALUES (1, 3), (2, 3)", "INSERT INTO t VALUES (2, 9) ON DUPLICATE KEY UPDATE a = 10",
         "REPLACE INTO t VALUES (1, 7)", "REPLACE INTO t VALUES (1, 8), (4, 4)"],
    ),
    "another domain": (PLAIN, ["SET SESSION gtid_domain_id = 7", "INSERT INTO t VALUES (1, 3)", "UPDATE t SET a = 5"]),
    "select": (PLAIN, ["INSERT INTO t SELECT seq, seq FROM seq_1_to_5000", "DELETE FROM t WHERE id % 3 = 0"]),
    "trigger": (
        PLAIN,
        ["CREATE TABLE other (id INT)", "CREATE TRIGGER g AFTER INSERT ON other FOR EACH ROW INSERT INTO t VALUES (NEW.id, 1)",
         "INSERT INTO other VALUES (1), (2)", "DROP TRIGGER g"],
    ),
    "names of others": (
        PLAIN,
        ["CREATE TABLE `t t` (id INT)", "INSERT INTO `t t` VALUES (1)", "DROP TABLE `t t`", "INSERT INTO t VALUES (1, 1)",
         "CREATE TABLE T2 LIKE t", "TRUNCATE T2", "ALTER TABLE T2 DROP COLUMN a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_log_and_a_snapshot_make_the_table(logged: Database, case: str) -> None:
    columns, statements = CASES[case]
    logged.execute(f"CREATE TABLE t ({columns})".replace("(4)", "4"))
    begin = latest(logged)
    for statement in statements:
        logged.execute(statement)
    with opened(logged, begin) as reader:
        assert applied(changes_in(read_to_end(reader))) == table_of(logged)
    with opened(logged) as reader:
        assert applied(changes_in(read_to_end(reader))) == table_of(logged)


def test_a_table_without_transactions_has_changes_only(logged: Database) -> None:
    logged.execute(f"CREATE TABLE t ({PLAIN}) ENGINE = MyISAM")
    begin = latest(logged)
    logged.execute("INSERT INTO t VALUES (1, 3), (2, 4)")
    logged.execute("DELETE FROM t WHERE id = 1")
    with opened(logged, begin) as reader:
        assert changes_in(read_to_end(reader)) == [(0, 1, 3), (0, 2, 4), (3, 1, 3)]
    with pytest.raises(JobError, match="MyISAM"):
        changes_of(logged).open(Queue("t"), EARLIEST)
