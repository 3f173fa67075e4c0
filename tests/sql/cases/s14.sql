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

-- Regular LEFT JOIN with an updating side, EXISTS, NOT EXISTS, UNION distinct
CREATE TABLE s14 (oid BIGINT, cur VARCHAR, n BIGINT, paid DECIMAL(20, 2)) WITH ('connector' = 'blackhole');
CREATE TABLE s14b (uid BIGINT, src VARCHAR) WITH ('connector' = 'blackhole');

INSERT INTO s14
SELECT o.oid, o.cur, p.n, p.paid
FROM orders o LEFT JOIN (SELECT oid, COUNT(*) AS n, SUM(paid) AS paid FROM pays GROUP BY oid) p ON o.oid = p.oid
WHERE o.amount > 500;

INSERT INTO s14b
SELECT uid, 'order' FROM orders o WHERE EXISTS (SELECT 1 FROM pays p WHERE p.oid = o.oid) AND amount > 3000
UNION
SELECT uid, 'quiet' FROM orders o WHERE NOT EXISTS (SELECT 1 FROM ops x WHERE x.uid = o.uid AND x.act = 'login') AND uid IN (SELECT uid FROM ops);
