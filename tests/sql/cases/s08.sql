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

-- OVER aggregation in event time: rows and range frames; late rows are dropped
CREATE TABLE s08 (seq BIGINT, host VARCHAR, ts TIMESTAMP(3), run_cnt BIGINT, sum5 BIGINT, min5 DOUBLE) WITH ('connector' = 'blackhole');

INSERT INTO s08
SELECT seq, host, ts,
  COUNT(*) OVER w, SUM(`bytes`) OVER w, MIN(dur) OVER w
FROM ops
WINDOW w AS (PARTITION BY host ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW);
