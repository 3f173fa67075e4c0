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

-- Group window with early fire on every row (Blink: EMIT WITHOUT DELAY BEFORE WATERMARK)
SET 'table.exec.emit.early-fire.enabled' = 'true';
SET 'table.exec.emit.early-fire.delay' = '0 ms';

CREATE TABLE s06 (wstart TIMESTAMP(3), wend TIMESTAMP(3), act VARCHAR, n BIGINT, users BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO s06
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), TUMBLE_END(ts, INTERVAL '1' MINUTE), act, COUNT(*), COUNT(DISTINCT uid)
FROM ops
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), act;
