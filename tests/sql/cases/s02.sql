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

-- JSON functions on text, malformed and NULL documents, then a small aggregate with HAVING
CREATE TABLE s02 (lvl INT, cnt BIGINT, with_note BIGINT, ports BIGINT, max_ip VARCHAR, avg_score DOUBLE, bad BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO s02
SELECT lvl, COUNT(*), COUNT(note), COUNT(DISTINCT port), MAX(ip), AVG(score), SUM(CASE WHEN is_json THEN 0 ELSE 1 END)
FROM (
  SELECT CAST(JSON_VALUE(payload, '$.lvl') AS INT) AS lvl,
         JSON_VALUE(payload, '$.note') AS note,
         JSON_VALUE(payload, '$.src.port' RETURNING INTEGER) AS port,
         JSON_VALUE(payload, 'lax $.src.ip') AS ip,
         CAST(JSON_VALUE(payload, '$.score' DEFAULT '-1' ON EMPTY) AS DOUBLE) AS score,
         payload IS JSON AS is_json
  FROM ops)
GROUP BY lvl
HAVING COUNT(*) > 1;
