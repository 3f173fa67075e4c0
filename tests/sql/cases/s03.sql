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

-- UDTF in a cross join, grouped; a row without tags disappears
CREATE FUNCTION split_tags AS 'nx.udf.SplitTags';

CREATE TABLE s03 (tag VARCHAR, act VARCHAR, n BIGINT, first_pos BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO s03
SELECT T.tag, S.act, COUNT(*), SUM(CASE WHEN T.pos = 1 THEN 1 ELSE 0 END)
FROM ops AS S, LATERAL TABLE(split_tags(S.tags)) AS T(tag, pos)
GROUP BY T.tag, S.act;
