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

-- Date and time functions
CREATE TABLE s10 (seq BIGINT, d VARCHAR, ym VARCHAR, y BIGINT, q BIGINT, mo BIGINT, wk BIGINT, doy BIGINT, dow BIGINT, hh BIGINT, mi BIGINT, ss BIGINT,
  fl TIMESTAMP(3), ce TIMESTAMP(3), plus1 TIMESTAMP(3), plusm TIMESTAMP(3), diff INT, dd INT, asd DATE, ast TIME, ux BIGINT, fromux VARCHAR, parsed TIMESTAMP(3), bad TIMESTAMP(3)
) WITH ('connector' = 'blackhole');

INSERT INTO s10
SELECT seq, DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss.SSS'), DATE_FORMAT(ts, 'yyyyMM'),
  YEAR(ts), QUARTER(ts), MONTH(ts), WEEK(ts), DAYOFYEAR(ts), DAYOFWEEK(ts), HOUR(ts), MINUTE(ts), EXTRACT(SECOND FROM ts),
  FLOOR(ts TO HOUR), CEIL(ts TO DAY), ts + INTERVAL '1' DAY, ts - INTERVAL '1-1' YEAR TO MONTH,
  TIMESTAMPDIFF(MINUTE, TIMESTAMP '2028-02-28 23:59:30', ts), TIMESTAMPDIFF(DAY, ts, TIMESTAMP '2028-03-01 00:00:00'),
  CAST(ts AS DATE), CAST(FLOOR(ts TO SECOND) AS TIME), UNIX_TIMESTAMP(DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss')),
  FROM_UNIXTIME(1835481600 + seq * 3600, 'yyyy/MM/dd HH'),
  TO_TIMESTAMP(DATE_FORMAT(ts, 'dd.MM.yyyy HH-mm'), 'dd.MM.yyyy HH-mm'), TO_TIMESTAMP(act)
FROM ops WHERE MOD(seq, 20) = 0;
