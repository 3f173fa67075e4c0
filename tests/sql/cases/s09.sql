CREATE TABLE ops (
  seq BIGINT,
  host VARCHAR,
  uid BIGINT,
  act VARCHAR,
  ok BOOLEAN,
  dur DOUBLE,
  `bytes` INT,
  cmd VARCHAR,
  payload VARCHAR,
  tags VARCHAR,
  ts TIMESTAMP(3),
  pt AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ops_a.ndjson', 'format' = 'json');

CREATE TABLE orders (
  oid BIGINT,
  uid BIGINT,
  cur VARCHAR,
  amount DECIMAL(12, 2),
  otime TIMESTAMP(3),
  WATERMARK FOR otime AS otime - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders_a.ndjson', 'format' = 'json');

CREATE TABLE pays (
  pid BIGINT,
  oid BIGINT,
  paid DECIMAL(12, 2),
  ptime TIMESTAMP(3),
  WATERMARK FOR ptime AS ptime - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/pays_a.ndjson', 'format' = 'json');

CREATE TABLE rates (
  cur VARCHAR,
  rate DECIMAL(10, 4),
  rtime TIMESTAMP(3),
  WATERMARK FOR rtime AS rtime - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/rates_a.ndjson', 'format' = 'json');

CREATE TABLE users (
  uid BIGINT,
  name VARCHAR,
  dept VARCHAR,
  level INT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/users_a.ndjson', 'format' = 'json');

-- UNION ALL of two branches, GROUPING SETS, HAVING, COUNT DISTINCT, NULL group keys
CREATE TABLE s09 (act VARCHAR, host VARCHAR, g BIGINT, n BIGINT, du BIGINT, sb BIGINT, ad DOUBLE) WITH ('connector' = 'blackhole');

INSERT INTO s09
SELECT act, host, GROUPING_ID(act, host), COUNT(*), COUNT(DISTINCT uid), SUM(CAST(`bytes` AS BIGINT)), AVG(dur)
FROM (
  SELECT act, host, uid, `bytes`, dur FROM ops WHERE ok IS TRUE
  UNION ALL
  SELECT 'not-ok', host, uid, `bytes`, dur FROM ops WHERE ok IS NOT TRUE
) t
GROUP BY GROUPING SETS ((act, host), (act), ())
HAVING COUNT(*) >= 20;
