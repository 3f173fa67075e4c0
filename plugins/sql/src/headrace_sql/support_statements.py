# ruff: noqa: E501, S608, RUF005  # tables of texts that are our own
"""What Flink's documentation has of statements, clauses, aggregates and hints, each with a text that is run.

Read by the page of support and by its test; the tables that the texts use are those of ``SETUP``.
"""

from __future__ import annotations

from headrace_sql.support_cases import Case

SETUP = """
CREATE VIEW v AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('a', 3)) AS t(k, x);
CREATE VIEW u AS SELECT * FROM (VALUES ('a', 'A'), ('c', 'C')) AS t(k, n);
CREATE TABLE e (k STRING, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '${EVENTS}', 'format' = 'json');
CREATE TABLE r (k STRING, rate BIGINT, ts TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = '${RATES}', 'format' = 'json');
CREATE TABLE s (k STRING, x BIGINT) WITH ('connector' = 'print');
CREATE TABLE files (k STRING, x BIGINT) WITH ('connector' = 'filesystem', 'path' = '${EVENTS}.parts', 'format' = 'json');
"""
#: The rows of the tables ``e`` and ``r`` of SETUP, as JSON lines.
EVENTS = "".join(
    f'{{"k": "{k}", "x": {x}, "ts": "2026-01-01 00:00:{second:02d}"}}\n'
    for k, x, second in (("a", 1, 1), ("b", 2, 2), ("a", 3, 4), ("a", 4, 7), ("b", 5, 8), ("z", 0, 30))
)
RATES = "".join(
    f'{{"k": "{k}", "rate": {rate}, "ts": "2026-01-01 00:00:{second:02d}"}}\n'
    for k, rate, second in (("a", 10, 0), ("a", 20, 5), ("b", 30, 0), ("b", 30, 30))
)
_T = "TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
_BY = "GROUP BY window_start, window_end"

STATEMENTS: dict[str, tuple[Case, ...]] = {
    "CREATE": (
        Case("CREATE TABLE", "CREATE TABLE c (a INT, b AS a + 1, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'print'); DESCRIBE c"),
        Case("CREATE TABLE … LIKE", "CREATE TABLE c WITH ('connector' = 'blackhole') LIKE s; SHOW COLUMNS FROM c"),
        Case("CREATE TABLE … AS", "CREATE TABLE c WITH ('connector' = 'print') AS SELECT k, x FROM v"),
        Case("CREATE OR REPLACE TABLE … AS", "CREATE OR REPLACE TABLE c WITH ('connector' = 'print') AS SELECT k FROM v"),
        Case("DISTRIBUTED BY", "CREATE TABLE c (a INT) DISTRIBUTED BY (a) INTO 4 BUCKETS WITH ('connector' = 'print')"),
        Case("CREATE VIEW", "CREATE VIEW w (y) AS SELECT x FROM v; SELECT y FROM w"),
        Case("CREATE FUNCTION … LANGUAGE PYTHON", "CREATE FUNCTION f AS 'headrace_sql.support_functions:plus_one' LANGUAGE PYTHON; SELECT f(x) FROM v"),
        Case("CREATE FUNCTION … USING JAR", "CREATE FUNCTION f AS 'a.B' LANGUAGE JAVA USING JAR 'f.jar'"),
        Case("CREATE DATABASE", "CREATE DATABASE d; SHOW DATABASES"),
        Case("CREATE CATALOG", "CREATE CATALOG c WITH ('type' = 'generic_in_memory'); SHOW CATALOGS"),
        Case("CREATE CATALOG (Hive)", "CREATE CATALOG c WITH ('type' = 'hive')"),
        Case("CREATE MODEL", "CREATE MODEL m WITH ('provider' = 'openai')"),
        Case("CREATE MATERIALIZED TABLE", "CREATE MATERIALIZED TABLE m AS SELECT k FROM v"),
        Case("CREATE CONNECTION", "CREATE CONNECTION c WITH ('type' = 'basic')"),
    ),
    "DROP, ALTER": (
        Case("DROP TABLE", "DROP TABLE s; SHOW TABLES LIKE 's'"), Case("DROP VIEW", "DROP VIEW u; SHOW VIEWS"),
        Case("DROP FUNCTION", "DROP FUNCTION IF EXISTS f; SHOW USER FUNCTIONS LIKE 'f'"),
        Case("DROP DATABASE", "CREATE DATABASE d; DROP DATABASE d; SHOW DATABASES"),
        Case("DROP CATALOG", "CREATE CATALOG c WITH ('type' = 'generic_in_memory'); DROP CATALOG c; SHOW CATALOGS"),
        Case("ALTER TABLE … ADD, MODIFY, DROP", "ALTER TABLE s ADD y INT FIRST; ALTER TABLE s MODIFY y BIGINT; ALTER TABLE s DROP x; SHOW COLUMNS FROM s"),
        Case("ALTER TABLE … RENAME", "ALTER TABLE s RENAME x TO z; ALTER TABLE s RENAME TO q; SHOW COLUMNS FROM q"),
        Case("ALTER TABLE … SET, RESET", "ALTER TABLE s SET ('connector' = 'blackhole'); SHOW CREATE TABLE s"),
        Case("ALTER TABLE … ADD PARTITION", "ALTER TABLE s ADD PARTITION (k = 'a')"),
        Case("ALTER VIEW", "ALTER VIEW u AS SELECT k FROM v; SELECT * FROM u"),
        Case("ALTER DATABASE, CATALOG", "ALTER DATABASE default_database SET ('a' = 'b'); DESCRIBE DATABASE EXTENDED default_database"),
        Case("ALTER MODEL", "ALTER MODEL m SET ('a' = 'b')"),
    ),
    "Rows in other systems": (
        Case("INSERT INTO … SELECT", "INSERT INTO s SELECT k, x FROM v"), Case("INSERT INTO … VALUES", "INSERT INTO s VALUES ('c', 9)"),
        Case("INSERT INTO t (columns)", "INSERT INTO s (x) SELECT x FROM v"),
        Case("INSERT OVERWRITE (files)", "INSERT OVERWRITE files SELECT k, x FROM v"), Case("INSERT OVERWRITE (other connectors)", "INSERT OVERWRITE s SELECT k, x FROM v"),
        Case("STATEMENT SET", "EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT k, x FROM v; INSERT INTO s SELECT k, 0 FROM u; END"),
        Case("UPDATE", "UPDATE s SET x = 1"), Case("DELETE", "DELETE FROM s WHERE x = 1"), Case("TRUNCATE TABLE", "TRUNCATE TABLE s"),
    ),
    "Asking and setting": (
        Case("DESCRIBE", "DESCRIBE e"), Case("SHOW TABLES … LIKE", "SHOW TABLES LIKE 'e'"), Case("SHOW CREATE TABLE", "SHOW CREATE TABLE s"),
        Case("SHOW CREATE VIEW", "SHOW CREATE VIEW u"), Case("SHOW FUNCTIONS", "SHOW FUNCTIONS LIKE 'UPPER'"), Case("SHOW MODULES", "SHOW MODULES"),
        Case("SHOW JARS", "SHOW JARS"), Case("SHOW JOBS", "SHOW JOBS"), Case("SHOW PARTITIONS", "SHOW PARTITIONS s"), Case("SHOW PROCEDURES", "SHOW PROCEDURES"),
        Case("EXPLAIN", "EXPLAIN SELECT k FROM v"), Case("USE", "CREATE DATABASE d; USE d; SHOW CURRENT DATABASE"), Case("USE MODULES", "USE MODULES core"),
        Case("SET, RESET", "SET 'table.local-time-zone' = 'Asia/Tokyo'; SET"), Case("LOAD MODULE", "LOAD MODULE hive"), Case("ADD JAR", "ADD JAR 'f.jar'"),
        Case("ANALYZE TABLE", "ANALYZE TABLE s COMPUTE STATISTICS"), Case("CALL", "CALL sys.generate_n(4)"), Case("STOP JOB", "STOP JOB 'x'"),
        Case("COMPILE PLAN", "COMPILE PLAN 'p' FOR INSERT INTO s SELECT k, x FROM v"),
    ),
    "Queries": (
        Case("SELECT without FROM", "SELECT 1 AS one"), Case("SELECT DISTINCT", "SELECT DISTINCT k FROM v"), Case("WHERE", "SELECT x FROM v WHERE x > 1"),
        Case("WITH", "WITH w AS (SELECT x FROM v) SELECT SUM(x) AS s FROM w"),
        Case("WITH RECURSIVE", "WITH RECURSIVE w AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM w WHERE n < 3) SELECT * FROM w"),
        Case("VALUES", "SELECT * FROM (VALUES (1, 'a')) AS t(x, y)"), Case("GROUP BY, HAVING", "SELECT k, SUM(x) AS s FROM v GROUP BY k HAVING COUNT(*) > 1"),
        Case("GROUPING SETS", "SELECT k, SUM(x) AS s FROM v GROUP BY GROUPING SETS ((k), ())"), Case("ROLLUP", "SELECT k, SUM(x) AS s FROM v GROUP BY ROLLUP (k)"),
        Case("CUBE", "SELECT k, SUM(x) AS s FROM v GROUP BY CUBE (k)"), Case("UNION ALL", "SELECT k FROM v UNION ALL SELECT k FROM u"),
        Case("UNION", "SELECT k FROM v UNION SELECT k FROM u"), Case("INTERSECT", "SELECT k FROM v INTERSECT SELECT k FROM u"),
        Case("EXCEPT", "SELECT k FROM v EXCEPT SELECT k FROM u"), Case("ORDER BY time attribute", "SELECT x FROM e ORDER BY ts"),
        Case("ORDER BY … LIMIT", "SELECT x FROM v ORDER BY x DESC LIMIT 2"), Case("ORDER BY without LIMIT", "SELECT x FROM v ORDER BY x"),
        Case("LIMIT", "SELECT 1 AS one FROM v LIMIT 2"), Case("IN (SELECT …)", "SELECT x FROM v WHERE k IN (SELECT k FROM u)"),
        Case("EXISTS", "SELECT x FROM v WHERE EXISTS (SELECT 1 FROM u WHERE u.k = v.k)"), Case("scalar subquery", "SELECT x FROM v WHERE x = (SELECT MAX(x) FROM v)"),
        Case("AS OF SYSTEM TIME (time travel)", "SELECT * FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00'"),
        Case("QUALIFY", "SELECT k, x FROM v QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) = 1"),
        Case("TABLESAMPLE", "SELECT x FROM v TABLESAMPLE BERNOULLI (50)"),
    ),
    "Windows": (
        Case("TUMBLE", f"SELECT window_start, SUM(x) AS s FROM {_T} {_BY}"),
        Case("HOP", f"SELECT window_start, SUM(x) AS s FROM TABLE(HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) {_BY}"),
        Case("CUMULATE", f"SELECT window_end, SUM(x) AS s FROM TABLE(CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) {_BY}"),
        Case("SESSION", f"SELECT k, SUM(x) AS s FROM TABLE(SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND)) {_BY}, k"),
        Case("windows without GROUP BY", f"SELECT x, window_end FROM {_T}"), Case("TUMBLE in GROUP BY", "SELECT TUMBLE_END(ts, INTERVAL '5' SECOND) AS t, SUM(x) AS s FROM e GROUP BY TUMBLE(ts, INTERVAL '5' SECOND)"),
        Case("window Top-N", f"SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) AS rn FROM {_T}) WHERE rn = 1"),
        Case("window join", f"SELECT a.x, b.x AS y FROM (SELECT * FROM {_T}) a JOIN (SELECT * FROM {_T}) b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end AND a.x < b.x"),
        Case("OVER … RANGE", "SELECT x, SUM(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) AS s FROM e"),
        Case("OVER … ROWS", "SELECT x, SUM(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM e"),
        Case("OVER … FOLLOWING", "SELECT SUM(x) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS s FROM e"),
    ),
    "Joins": (
        Case("INNER JOIN", "SELECT v.x, u.n FROM v JOIN u ON v.k = u.k"), Case("LEFT, RIGHT, FULL JOIN", "SELECT v.x, u.n FROM v FULL JOIN u ON v.k = u.k"),
        Case("CROSS JOIN", "SELECT v.x, u.n FROM v CROSS JOIN u"),
        Case("interval join", "SELECT a.x, b.x AS y FROM e AS a JOIN e AS b ON a.k = b.k AND b.ts BETWEEN a.ts + INTERVAL '1' SECOND AND a.ts + INTERVAL '3' SECOND"),
        Case("temporal join (event time)", "SELECT e.x, r.rate FROM e JOIN r FOR SYSTEM_TIME AS OF e.ts ON e.k = r.k"),
        Case("lookup join", "SELECT a.x, r.rate FROM (SELECT *, PROCTIME() AS p FROM v) AS a JOIN r FOR SYSTEM_TIME AS OF a.p ON a.k = r.k"),
        Case("UNNEST", "SELECT y FROM (VALUES (ARRAY[1, 2])) AS t(l) CROSS JOIN UNNEST(l) AS w(y)"),
        Case("LATERAL TABLE", "SELECT w FROM (VALUES ('a-b')) AS t(s), LATERAL TABLE(STRING_SPLIT(s, '-')) AS f(w)"),
        Case("NATURAL JOIN, USING", "SELECT x, n FROM v JOIN u USING (k)"),
    ),
    "Top-N, deduplication, patterns": (
        Case("Top-N", "SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS rn FROM v) WHERE rn <= 1"),
        Case("deduplication", "SELECT k, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM e) WHERE rn = 1"),
        Case("MATCH_RECOGNIZE", "SELECT * FROM e MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.x AS f, LAST(B.x) AS l ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) DEFINE B AS B.x > A.x, C AS C.x > 3) WHERE k = 'a'"),
        Case("ALL ROWS PER MATCH", "SELECT * FROM e MATCH_RECOGNIZE (ORDER BY ts MEASURES A.x AS f ALL ROWS PER MATCH PATTERN (A) DEFINE A AS A.x > 1)"),
        Case("pattern groups, alternatives (Flink has none)", "SELECT * FROM e MATCH_RECOGNIZE (ORDER BY ts MEASURES A.x AS f PATTERN ((A | B) C) DEFINE A AS A.x > 1)"),
        Case("process table functions", "SELECT * FROM my_ptf(input => TABLE v PARTITION BY k)"),
        Case("ML_PREDICT", "SELECT * FROM TABLE(ML_PREDICT(TABLE v, MODEL m, DESCRIPTOR(x)))"),
        Case("VECTOR_SEARCH", "SELECT * FROM TABLE(VECTOR_SEARCH(TABLE v, DESCRIPTOR(x), x, 3))"),
    ),
    "Hints": (
        Case("OPTIONS", "SELECT COUNT(*) AS n FROM e /*+ OPTIONS('format' = 'json') */"), Case("STATE_TTL", "SELECT /*+ STATE_TTL('v' = '1 d') */ k, SUM(x) AS s FROM v GROUP BY k"),
        Case("BROADCAST and other join hints", "SELECT /*+ BROADCAST(u) */ v.x FROM v JOIN u ON v.k = u.k"),
        Case("LOOKUP", "SELECT /*+ LOOKUP('table' = 'r', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '1 s', 'max-attempts' = '3') */ a.x FROM (SELECT *, PROCTIME() AS p FROM v) AS a JOIN r FOR SYSTEM_TIME AS OF a.p ON a.k = r.k"),
    ),
    "Aggregates": tuple(
        Case(name, f"SELECT {call} AS a FROM v")
        for name, call in (
            ("COUNT", "COUNT(DISTINCT k)"), ("SUM", "SUM(x)"), ("AVG", "AVG(x)"), ("MAX, MIN", "MAX(x) - MIN(x)"), ("STDDEV_POP, STDDEV_SAMP", "ROUND(STDDEV_POP(x), 4)"),
            ("VAR_POP, VAR_SAMP, VARIANCE", "VAR_SAMP(x)"), ("COLLECT", "CARDINALITY(COLLECT(x))"), ("ARRAY_AGG", "ARRAY_AGG(x)"), ("FIRST_VALUE, LAST_VALUE", "FIRST_VALUE(x)"),
            ("LISTAGG", "LISTAGG(k, '+')"), ("PERCENTILE", "PERCENTILE(x, 0.5)"), ("JSON_OBJECTAGG", "JSON_OBJECTAGG(k VALUE x)"), ("JSON_ARRAYAGG", "JSON_ARRAYAGG(k)"),
            ("APPROX_COUNT_DISTINCT", "APPROX_COUNT_DISTINCT(k)"), ("FILTER", "COUNT(*) FILTER (WHERE x > 1)"),
        )
    )
    + (
        Case("GROUPING, GROUPING_ID", "SELECT k, GROUPING(k) AS g FROM v GROUP BY GROUPING SETS ((k), ())"), Case("GROUP_ID", "SELECT k, GROUP_ID() AS g FROM v GROUP BY k"),
        Case("RANK, DENSE_RANK", "SELECT k, x FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY x) AS rn FROM v) WHERE rn = 1"),
        Case("LAG", "SELECT x, LAG(x) OVER (PARTITION BY k ORDER BY ts) AS y FROM e"), Case("LEAD", "SELECT x, LEAD(x) OVER (PARTITION BY k ORDER BY x) AS y FROM v"),
        Case("CUME_DIST, PERCENT_RANK", "SELECT x, CUME_DIST() OVER (ORDER BY x) AS y FROM v"), Case("NTILE", "SELECT x, NTILE(2) OVER (ORDER BY x) AS y FROM v"),
        Case("CURRENT_WATERMARK", "SELECT x, CURRENT_WATERMARK(ts) IS NULL AS n FROM e WHERE x = 1"),
    ),
}  # fmt: skip
