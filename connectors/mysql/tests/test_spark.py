"""A bounded job on Spark: a table into another one."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
import pytest
from mysql_world import Database


@pytest.mark.spark
def test_table_to_table(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10, 2))")
    database.execute("INSERT INTO t SELECT seq, CONCAT('name ', seq), seq / 4 FROM seq_1_to_500")
    job = (
        hr.stream("test", "spark")
        .from_mysql(**database.options(range_size=200))
        .where("id % 2 = 0")
        .select("id", name="upper(name)", price="price * 2")
        .to_mysql(**database.options(table="copy", create_table=True, key=["id"]))
    )
    options = {"checkpoint": str(tmp_path / "checkpoint"), "show_progress": False, "master": "local[2]"}
    report = job.run("spark", **options)
    assert report.dead_letters == 0
    wanted = [(n, f"NAME {n}") for n in range(2, 501, 2)]
    assert database.execute("SELECT id, name FROM copy ORDER BY id") == wanted
    assert database.execute("SELECT COUNT(*) FROM copy JOIN t USING (id) WHERE copy.price <> t.price * 2") == [(0,)]
    assert database.execute("SELECT COUNT(*) FROM headrace_offsets WHERE queue NOT LIKE '#job%'") == [(3,)]
    database.execute("INSERT INTO t VALUES (502, 'late', 1)")
    job.run("spark", **options)
    assert database.execute("SELECT id, name FROM copy ORDER BY id") == [*wanted, (502, "LATE")]
