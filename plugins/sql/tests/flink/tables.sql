CREATE TABLE t (id INT, k STRING, v INT, b BIGINT, d DOUBLE, amt DECIMAL(10,2), flag BOOLEAN, arr ARRAY<INT>, tags ARRAY<STRING>, r ROW<x INT, y STRING, q ROW<z INT, w DECIMAL(6,3)>>, m MAP<STRING, INT>, items ARRAY<ROW<sku STRING, n INT>>, ts TIMESTAMP(3), day0 DATE, p AS PROCTIME(), v2 AS v * 2, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('connector'='filesystem','path'='${DATA}/t.ndjson','format'='json');
CREATE TABLE s (id INT, k STRING, price DECIMAL(12,4), qty INT, note STRING, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('connector'='filesystem','path'='${DATA}/s.ndjson','format'='json');
CREATE TABLE rates (k STRING, rate DECIMAL(8,4), ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector'='filesystem','path'='${DATA}/rates.ndjson','format'='json');
CREATE TABLE rlog (k STRING, rate DECIMAL(8,4), ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector'='filesystem','path'='${DATA}/rates.ndjson','format'='json');
CREATE TABLE u (k STRING, name STRING, grp INT) WITH ('connector'='filesystem','path'='${DATA}/u.ndjson','format'='json');
CREATE TABLE late (id INT, k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '3' SECOND) WITH ('connector'='filesystem','path'='${DATA}/late.ndjson','format'='json');
CREATE TABLE n1 (a INT, c STRING NOT NULL) WITH ('connector'='filesystem','path'='${DATA}/n1.ndjson','format'='json');
CREATE TABLE n2 (a INT NOT NULL, c STRING) WITH ('connector'='filesystem','path'='${DATA}/n2.ndjson','format'='json');

CREATE TABLE fl (id INT, k STRING, f FLOAT, g FLOAT, i INT, b BIGINT, s SMALLINT, d DOUBLE, e DECIMAL(5,2)) WITH ('connector'='filesystem','path'='${DATA}/fl.ndjson','format'='json');
CREATE TABLE flt (id INT, k STRING, f FLOAT, g FLOAT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector'='filesystem','path'='${DATA}/fl.ndjson','format'='json');
