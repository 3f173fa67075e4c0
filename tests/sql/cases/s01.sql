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

-- CASE, LIKE with ESCAPE, SIMILAR TO, REGEXP, string functions, NULL logic in a projection
CREATE TABLE s01 (seq BIGINT, kind VARCHAR, esc BOOLEAN, sim BOOLEAN, rx BOOLEAN, rx1 VARCHAR, rep VARCHAR,
  up VARCHAR, sub VARCHAR, pos INT, trimmed VARCHAR, len INT, cat VARCHAR, pad VARCHAR, both3 BOOLEAN, size_class VARCHAR
) WITH ('connector' = 'blackhole');

INSERT INTO s01
SELECT seq,
  CASE WHEN cmd LIKE '/usr/bin/%' OR cmd LIKE '/bin/%' THEN 'unix'
       WHEN cmd LIKE 'C:\\%' THEN 'win2' WHEN cmd LIKE 'C:\%' THEN 'win'
       WHEN cmd LIKE 'curl%|%sh' THEN 'pipe' WHEN cmd IS NULL THEN 'none' ELSE 'other' END,
  cmd LIKE '%100\%%' ESCAPE '\',
  cmd SIMILAR TO '(grep|ssh)%',
  REGEXP(cmd, '[0-9]{2,}'),
  REGEXP_EXTRACT(cmd, '([a-z]+)[-_ ]?(\d+)', 2),
  REGEXP_REPLACE(cmd, '\d+', '#'),
  UPPER(SUBSTRING(cmd, 1, 6)), SUBSTRING(cmd FROM 3 FOR 4), POSITION('1' IN cmd), TRIM(cmd), CHAR_LENGTH(cmd),
  COALESCE(host, '?') || ':' || act, LPAD(CAST(uid AS VARCHAR), 5, '0'),
  ok AND (`bytes` > 0),
  CASE WHEN `bytes` < 0 THEN 'neg' WHEN `bytes` = 0 THEN 'zero' WHEN `bytes` BETWEEN 1 AND 9999 THEN 'small'
       WHEN `bytes` NOT BETWEEN 1 AND 9999 THEN 'big' ELSE 'null' END
FROM ops
WHERE seq <= 3000 AND (act IN ('exec', 'login') OR NOT (ok = TRUE)) AND act <> 'logout';
