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

-- Old-syntax HOP, CUMULATE and SESSION table function, three sinks
CREATE TABLE s11 (hstart TIMESTAMP(3), hend TIMESTAMP(3), act VARCHAR, n BIGINT, mb DOUBLE) WITH ('connector' = 'blackhole');
CREATE TABLE s11b (wstart TIMESTAMP(3), wend TIMESTAMP(3), n BIGINT, du BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE s11c (host VARCHAR, s0 TIMESTAMP(3), s1 TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO s11
SELECT HOP_START(ts, INTERVAL '15' SECOND, INTERVAL '45' SECOND), HOP_END(ts, INTERVAL '15' SECOND, INTERVAL '45' SECOND),
  act, COUNT(*), AVG(dur)
FROM ops WHERE ok GROUP BY act, HOP(ts, INTERVAL '15' SECOND, INTERVAL '45' SECOND);

INSERT INTO s11b
SELECT window_start, window_end, COUNT(*), COUNT(DISTINCT uid)
FROM TABLE(CUMULATE(TABLE ops, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;

INSERT INTO s11c
SELECT host, window_start, window_end, COUNT(*)
FROM TABLE(SESSION(TABLE ops PARTITION BY host, DESCRIPTOR(ts), INTERVAL '3' SECOND))
GROUP BY host, window_start, window_end;
