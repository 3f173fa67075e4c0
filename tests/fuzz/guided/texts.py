"""Targets: texts that users write: SQL, expressions, rules, Sigma rules, pipelines, patterns."""

# ruff: noqa: E501  # inputs are not broken over lines
from __future__ import annotations

import contextlib
import tempfile
from functools import cache
from pathlib import Path

import headrace as hr
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace.jobs.source_parts import codec_of
from headrace_columnar.expressions import compile_expression
from headrace_pipeline.cases import cases_of
from headrace_pipeline.compiling import PipelineFile
from headrace_rules.loading import load, sql_rules
from headrace_rules.model import Rejection
from headrace_sql import SqlSession

from tests.fuzz.guided.target import Target

COLUMNS = Schema.of(
    {"a": "string", "b": "int64", "c": "float64", "d": "boolean", "e": "timestamp", "f": "decimal(10, 2)",
     "g": "array<string>", "h": "struct<x: int64, y: string>", "i": "date"}
)  # fmt: skip
_TABLES = """
CREATE TABLE t (a STRING, b BIGINT, c DOUBLE, e TIMESTAMP(3), WATERMARK FOR e AS e - INTERVAL '5' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '/tmp/none', 'format' = 'json');
CREATE TABLE o (a STRING, b BIGINT) WITH ('connector' = 'print');
"""


def _sql(data: bytes) -> None:
    hr.sql(_TABLES + data.decode("utf-8", "replace"), session=SqlSession()).plan()


def _statements(data: bytes) -> None:
    hr.sql(data.decode("utf-8", "replace"), session=SqlSession())


def _expression(data: bytes) -> None:
    compile_expression(data.decode("utf-8", "replace"), COLUMNS)


def _rule_documents(data: bytes) -> None:
    """A rule of a YAML document is a rule whose expression compiles or is refused, or a rejection with a reason."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rules.yaml"
        path.write_bytes(data)
        loaded = load(path)
        assert all(each.reason for each in loaded.rejections)
        for rule in loaded.rules:
            with contextlib.suppress(ExpressionError):
                compile_expression(rule.expression, COLUMNS)


def _sql_rules(data: bytes) -> None:
    for found in sql_rules(data.decode("utf-8", "replace"), "rules.sql"):
        if not isinstance(found, Rejection):
            compile_expression(found.expression, COLUMNS)


def _pipeline(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "job.yaml"
        path.write_bytes(data)
        file = PipelineFile.of(path, {})
        file.job().plan()
        cases_of(file.root)


@cache
def _lines() -> list[bytes]:
    return [
        b"",
        b'10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5',
        "é ☂".encode(),
        b"\xff\xfe",
        b"a=1 b=2",
    ]


def _grok(data: bytes) -> None:
    codec = codec_of("grok", {"pattern": data.decode("utf-8", "replace")})
    assert codec is not None
    schema = codec.default_schema()
    if schema is not None:
        codec.decoder(schema).decode(hr.Bodies.of(_lines()))


def _timestamp_layout(data: bytes) -> None:
    layout, _, value = data.partition(b"\0")
    codec = codec_of("csv", {"timestamp_format": layout.decode("utf-8", "replace")})
    assert codec is not None
    codec.decoder(Schema.of({"e": "timestamp"})).decode(hr.Bodies.of([value, b"2026-01-01 00:00:00"]))


_SQL_SEEDS = [
    b"INSERT INTO o SELECT a, b FROM t WHERE b > 1 AND a LIKE '%x_'",
    b"INSERT INTO o SELECT a, COUNT(*) FROM t GROUP BY a",
    b"INSERT INTO o SELECT a, SUM(b) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(e), INTERVAL '1' MINUTE)) GROUP BY a, window_start, window_end",
    b"INSERT INTO o SELECT l.a, r.b FROM t l JOIN t r ON l.a = r.a AND l.e BETWEEN r.e - INTERVAL '1' HOUR AND r.e",
    b"INSERT INTO o SELECT a, b FROM (SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC) n FROM t) WHERE n <= 3",
    b"SELECT a, LAG(b) OVER (PARTITION BY a ORDER BY e) FROM t",
    b"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY a ORDER BY e MEASURES A.b AS x PATTERN (A B+) DEFINE B AS B.b > A.b)",
    b"SELECT DISTINCT a FROM t UNION ALL SELECT a FROM t INTERSECT SELECT 'x'",
    b"CREATE VIEW v AS SELECT a, CASE WHEN b > 1 THEN 'x' ELSE NULL END c FROM t; SELECT * FROM v",
    b"WITH w AS (SELECT * FROM t) SELECT COUNT(DISTINCT a) FILTER (WHERE b IS NOT NULL) FROM w HAVING COUNT(*) > 1",
]
_STATEMENT_SEEDS = [
    b"CREATE TABLE t (a STRING NOT NULL, b ROW<x INT, y ARRAY<MAP<STRING, DECIMAL(10, 2)>>>, c AS b.x + 1, PRIMARY KEY (a) NOT ENFORCED) "
    b"COMMENT 'c' PARTITIONED BY (a) WITH ('connector' = 'print')",
    b"CREATE TABLE t (a VARCHAR, proctime AS PROCTIME()) WITH (type = 'rocketmq', topic = 'x')",
    b"SET 'table.exec.state.ttl' = '1 h'; USE CATALOG c; DROP TABLE IF EXISTS x; -- end",
    b"CREATE TEMPORARY FUNCTION f AS 'a.B' LANGUAGE PYTHON; /* c */ EXPLAIN SELECT 1",
    b"BEGIN STATEMENT SET; INSERT INTO x SELECT 1; END;",
]
_EXPRESSION_SEEDS = [
    b"a LIKE '%x\\_%' ESCAPE '\\' AND b BETWEEN 1 AND 2 OR NOT d", b"CASE a WHEN 'x' THEN b ELSE c END + 1.5e3",
    b"CAST(a AS TIMESTAMP(3)) + INTERVAL '1' DAY", b"regexp_extract(a, '(\\w+)@(.*)', 2) RLIKE 'x{2,3}'",
    b"coalesce(g[1], h.y, upper(trim(BOTH ' ' FROM a)))", b"f / 3 % 2 <> -b AND i = DATE '2026-01-01'",
    b"json_value(a, '$.x[0].y') IS NULL", b"a IN ('x', 'y') AND b IN (1, 2, 3)", b"date_format(e, 'yyyy-MM-dd') || 'x'",
    b"extract(HOUR FROM e) = 1", b"\xc3\xa9 = '\xe2\x98\x82'", b"substring(a FROM 2 FOR 3) SIMILAR TO 'a|b'",
]  # fmt: skip
_RULE_SEEDS = [
    b"- id: r1\n  expression: a LIKE '%x%'\n  severity: high\n  labels: {team: x}\n",
    b"rules:\n  - {id: x, expression: 'b > 1'}\n  - {id: y, expression: 'nothing('}\n",
    b"title: t\nid: 5af54681-df95-4c26-854f-2565e13cfab0\nlogsource: {category: process_creation}\ndetection:\n  s:\n    a|contains|all: [x, y]\n"
    b"    b|gte: 5\n  f:\n    - a|re: 'x.*y'\n    - a|base64offset|contains: foo\n  condition: s and not 1 of f*\nlevel: high\n",
    b"detection:\n  k: ['one', 'two*']\n  c:\n    a|cidr: 10.0.0.0/8\n    a|fieldref: a\n    a|windash|contains: ' -x'\n    a: null\n  condition: all of them\n",
    b"a: &x [1, 2]\nb: *x\n---\n- id: z\n  expression: 'd'\n",
]
_SQL_RULE_SEEDS = [b"-- id: r1\na = 'x';\n-- id: r2\n-- severity: low\nb > 1 AND a LIKE '%;%';\n"]
_PIPELINE_SEEDS = [
    b"name: p\nsources:\n  s: {connector: file, path: /tmp/none/*.log, format: json, schema: {a: string, b: int64}}\n"
    b"steps:\n  - where: b > 1\n  - select: [a, b]\nsinks:\n  o: {connector: print}\n",
    b"name: p\nnamespace: n\nvariables: {X: 1}\nsources:\n  s: {connector: file, path: '${X}', format: raw}\nsteps:\n  - with_columns: {t: upper(line)}\n"
    b"  - route: {outputs: {q: t = 'A'}, default: r}\nsinks:\n  o: {from: q, connector: print}\n  u: {from: r, connector: print}\n"
    b"cases:\n  - name: c\n    in: {s: ['x']}\n    out: {o: [{line: x, t: X}]}\n",
]
_GROK_SEEDS = [
    b"%{COMBINEDAPACHELOG}", b"%{IP:client} %{WORD:verb:string} %{NUMBER:n:float}", b"(?<a>\\d+)-%{GREEDYDATA:rest}",
    b"%{DATA:[x][y]} %{NOTHING}",
]  # fmt: skip
_LAYOUT_SEEDS = [
    b"%d/%b/%Y:%H:%M:%S %z\x0001/Jan/2026:00:00:00 +0000",
    b"%Y-%m-%d %H:%M:%S%.f\x002026-01-01 00:00:00.5",
    b"%s\x001",
]

TARGETS = [
    Target("sql-queries", _sql, _SQL_SEEDS),
    Target("sql-statements", _statements, _STATEMENT_SEEDS),
    Target("expressions", _expression, _EXPRESSION_SEEDS),
    Target("rules-yaml", _rule_documents, _RULE_SEEDS),
    Target("rules-sql", _sql_rules, _SQL_RULE_SEEDS),
    Target("pipelines", _pipeline, _PIPELINE_SEEDS),
    Target("grok-patterns", _grok, _GROK_SEEDS),
    Target("timestamp-layouts", _timestamp_layout, _LAYOUT_SEEDS),
]
