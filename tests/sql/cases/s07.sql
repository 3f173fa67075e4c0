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

-- Cascaded group windows: sessions per user, then sessions per minute by SESSION_ROWTIME
CREATE TABLE s07 (wstart TIMESTAMP(3), sessions BIGINT, clicks BIGINT, longest BIGINT) WITH ('connector' = 'blackhole');

CREATE VIEW sess AS
SELECT uid, COUNT(*) AS clicks,
  SESSION_START(ts, INTERVAL '30' SECOND) AS s0, SESSION_END(ts, INTERVAL '30' SECOND) AS s1,
  SESSION_ROWTIME(ts, INTERVAL '30' SECOND) AS rt
FROM ops GROUP BY uid, SESSION(ts, INTERVAL '30' SECOND);

INSERT INTO s07
SELECT TUMBLE_START(rt, INTERVAL '1' MINUTE), COUNT(*), SUM(clicks), MAX(TIMESTAMPDIFF(SECOND, s0, s1))
FROM sess GROUP BY TUMBLE(rt, INTERVAL '1' MINUTE);
