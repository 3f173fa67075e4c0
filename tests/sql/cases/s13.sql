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

-- UDAF, FIRST_VALUE/LAST_VALUE, SPLIT_INDEX, LISTAGG in a group aggregate
CREATE FUNCTION wavg AS 'nx.udf.WAvg';

CREATE TABLE s13 (part VARCHAR, w DOUBLE, fv BIGINT, lv BIGINT, hosts VARCHAR) WITH ('connector' = 'blackhole');

INSERT INTO s13
SELECT SPLIT_INDEX(cmd, ' ', 0), wavg(dur, CAST(`bytes` AS DOUBLE)), FIRST_VALUE(uid), LAST_VALUE(uid), LISTAGG(DISTINCT act, '|')
FROM ops WHERE `bytes` > 0
GROUP BY SPLIT_INDEX(cmd, ' ', 0);
