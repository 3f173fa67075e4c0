-- name: offset1
SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5 OFFSET 3
-- name: offset2
SELECT id, v FROM t ORDER BY v, id OFFSET 2 ROWS FETCH FIRST 4 ROWS ONLY
-- name: offset_noorder
SELECT id, v FROM t LIMIT 3 OFFSET 2
-- name: limit_noorder
SELECT id FROM t LIMIT 3
-- name: offset_sub
SELECT k, cnt FROM (SELECT k, COUNT(*) AS cnt FROM t GROUP BY k ORDER BY cnt DESC, k OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY) WHERE cnt > 1
-- name: limit0
SELECT id FROM t ORDER BY id LIMIT 0
-- name: rownum_over
SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) FROM t
-- name: exceptall
SELECT a, c FROM n1 EXCEPT ALL SELECT a, c FROM n2
-- name: intersectall
SELECT a, c FROM n1 INTERSECT ALL SELECT a, c FROM n2
-- name: exceptall3
SELECT k FROM t EXCEPT ALL SELECT k FROM s EXCEPT ALL SELECT k FROM u
-- name: intersectall_agg
SELECT k, COUNT(*) AS n FROM (SELECT k FROM t INTERSECT ALL SELECT k FROM s) GROUP BY k
-- name: eqany
SELECT id FROM t WHERE v = ANY (SELECT qty FROM s)
-- name: eqsome
SELECT id FROM t WHERE v = SOME (SELECT qty FROM s WHERE qty IS NOT NULL)
-- name: neqall
SELECT id FROM t WHERE v <> ALL (SELECT qty FROM s WHERE qty IS NOT NULL)
-- name: gtall
SELECT id FROM t WHERE v > ALL (SELECT qty FROM s WHERE qty IS NOT NULL)
-- name: gtallnull
SELECT id FROM t WHERE v > ALL (SELECT qty FROM s)
-- name: gtany
SELECT id FROM t WHERE v > ANY (SELECT qty FROM s)
-- name: lesome
SELECT id FROM t WHERE v <= SOME (SELECT grp FROM u)
-- name: any_corr
SELECT id FROM t WHERE v = ANY (SELECT qty FROM s WHERE s.k = t.k)
-- name: all_corr
SELECT id FROM t WHERE v > ALL (SELECT qty FROM s WHERE s.k = t.k)
-- name: any_not
SELECT id FROM t WHERE NOT (v > ANY (SELECT grp FROM u WHERE grp IS NOT NULL))
-- name: any_select
SELECT id, v > ANY (SELECT grp FROM u) AS x FROM t
-- name: some_agg
SELECT id FROM t WHERE v >= ALL (SELECT MAX(qty) FROM s)
-- name: lat2
SELECT u.k, x.n FROM u, LATERAL (SELECT COUNT(*) AS n FROM t WHERE t.k = u.k) AS x
-- name: lat3
SELECT u.k, x.n, x.sv FROM u LEFT JOIN LATERAL (SELECT COUNT(*) AS n, SUM(v) AS sv FROM t WHERE t.k = u.k) AS x ON TRUE
-- name: lat4
SELECT u.k, x.id FROM u CROSS JOIN LATERAL (SELECT id FROM t WHERE t.k = u.k AND v > 5) AS x
-- name: lat5
SELECT u.k, x.id FROM u LEFT JOIN LATERAL (SELECT id FROM t WHERE t.k = u.k AND v > 5) AS x ON TRUE
-- name: lat6
SELECT u.k, x.id FROM u, LATERAL (SELECT id FROM t WHERE t.v > u.grp) AS x WHERE x.id < 10
-- name: lat7
SELECT u.k, x.mv FROM u, LATERAL (SELECT MAX(v) AS mv FROM t WHERE t.k = u.k GROUP BY flag) AS x
-- name: lat12
SELECT u.k, x.n FROM u LEFT JOIN LATERAL (SELECT COUNT(DISTINCT v) AS n FROM t WHERE t.k = u.k HAVING COUNT(*) > 25) AS x ON TRUE
-- name: lat13
SELECT u.k, x.d FROM u, LATERAL (SELECT DISTINCT flag AS d FROM t WHERE t.k = u.k) AS x
-- name: mrgroup2
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS aid, B.id AS bid PATTERN (A (B C)) DEFINE A AS A.v > 3, B AS B.v <= 3)
-- name: w1
SELECT a.window_start, a.k, a.n, b.m FROM (SELECT window_start, window_end, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k) a JOIN (SELECT window_start, window_end, k, SUM(qty) AS m FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k
-- name: w2
SELECT window_start, k, n, m, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, k) AS rn FROM (SELECT a.window_start, a.window_end, a.k, a.n, b.m FROM (SELECT window_start, window_end, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end, k) a LEFT JOIN (SELECT window_start, window_end, k, SUM(qty) AS m FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end, k) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k)) WHERE rn <= 2
-- name: w3
SELECT window_start, window_end, k, COUNT(*), SUM(v) FILTER (WHERE flag), COUNT(DISTINCT v), GROUPING(k) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '15' SECOND)) GROUP BY window_start, window_end, GROUPING SETS ((k), ())
-- name: w4
SELECT window_start, window_end, k, flag, COUNT(*), GROUPING_ID(k, flag) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) GROUP BY window_start, window_end, CUBE (k, flag)
-- name: w5
SELECT window_start, window_end, k, flag, AVG(amt), MIN(ts), MAX(d) FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)) GROUP BY window_start, window_end, ROLLUP (k, flag)
-- name: w6
SELECT k, window_start, window_end, COUNT(*), SUM(amt) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY k, window_start, window_end
-- name: w6b
SELECT window_start, window_end, COUNT(*), SUM(amt) FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY window_start, window_end
-- name: w6c
SELECT k, window_start, window_end, COUNT(*) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, k HAVING COUNT(*) > 2
-- name: w6d
SELECT id, k, window_start, window_end, window_time FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND))
-- name: w6e
SELECT window_start, window_end, SUM(n), COUNT(*) FROM (SELECT k, window_start, window_end, COUNT(*) n FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY k, window_start, window_end) GROUP BY window_start, window_end
-- name: w7
SELECT window_start, window_end, SUM(n) FROM (SELECT window_start, window_end, window_time AS rt, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, window_time, k) GROUP BY window_start, window_end
-- name: w8
CREATE VIEW w AS SELECT window_start AS ws, window_end AS we, window_time AS rt, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, window_time, k; SELECT window_start, window_end, SUM(n), COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(rt), INTERVAL '20' SECOND)) GROUP BY window_start, window_end
-- name: w9
CREATE VIEW w AS SELECT TUMBLE_START(ts, INTERVAL '5' SECOND) AS ws, TUMBLE_ROWTIME(ts, INTERVAL '5' SECOND) AS rt, k, SUM(v) AS sv FROM t GROUP BY TUMBLE(ts, INTERVAL '5' SECOND), k; SELECT HOP_START(rt, INTERVAL '10' SECOND, INTERVAL '20' SECOND), HOP_END(rt, INTERVAL '10' SECOND, INTERVAL '20' SECOND), k, MAX(sv) FROM w GROUP BY HOP(rt, INTERVAL '10' SECOND, INTERVAL '20' SECOND), k
-- name: w10
SELECT SESSION_START(rt, INTERVAL '6' SECOND), SESSION_END(rt, INTERVAL '6' SECOND), SESSION_ROWTIME(rt, INTERVAL '6' SECOND), SUM(n) FROM (SELECT TUMBLE_ROWTIME(ts, INTERVAL '2' SECOND) AS rt, COUNT(*) n FROM t WHERE flag GROUP BY TUMBLE(ts, INTERVAL '2' SECOND)) GROUP BY SESSION(rt, INTERVAL '6' SECOND)
-- name: w11
SELECT k, HOP_START(ts, INTERVAL '10' SECOND, INTERVAL '30' SECOND) ws, LISTAGG(DISTINCT r.y) IS NULL, COUNT(*) FROM t GROUP BY k, HOP(ts, INTERVAL '10' SECOND, INTERVAL '30' SECOND) HAVING COUNT(*) FILTER (WHERE v > 0) > 3
-- name: w12
SELECT * FROM (SELECT id, k, v, window_start, window_end, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v DESC, id) AS rn FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND))) WHERE rn <= 2
-- name: w13
SELECT window_start, k, id FROM (SELECT id, k, v, window_start, window_end, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY ts DESC) AS rn FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND))) WHERE rn = 1
-- name: w14
SELECT a.id, b.id, a.window_start FROM (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)) WHERE v > 3) a JOIN (SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND)) WHERE qty > 0) b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end
-- name: w15
SELECT a.id, a.window_start FROM (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))) a WHERE a.k IN (SELECT k FROM (SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND))) b WHERE a.window_start = b.window_start AND a.window_end = b.window_end)
-- name: w16
SELECT a.id, a.window_start FROM (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND))) a WHERE NOT EXISTS (SELECT 1 FROM (SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND))) b WHERE a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end)
-- name: w17
SELECT COALESCE(a.window_start, b.window_start), a.k, b.k, n, m FROM (SELECT window_start, window_end, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k) a FULL JOIN (SELECT window_start, window_end, k, COUNT(*) AS m FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k
-- name: w18
SELECT window_start, window_end, COUNT(*), SUM(v) FROM TABLE(TUMBLE(TABLE late, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end
-- name: w19
SELECT k, HOP_START(ts, INTERVAL '5' SECOND, INTERVAL '15' SECOND), COUNT(*) FROM late GROUP BY k, HOP(ts, INTERVAL '5' SECOND, INTERVAL '15' SECOND)
-- name: w20
SELECT k, SESSION_START(ts, INTERVAL '2' SECOND), SESSION_END(ts, INTERVAL '2' SECOND), COUNT(*) FROM late GROUP BY k, SESSION(ts, INTERVAL '2' SECOND)
-- name: w21
SELECT window_start, window_end, COUNT(*) FROM TABLE(CUMULATE(TABLE late, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '12' SECOND)) GROUP BY window_start, window_end
-- name: w22
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND)) GROUP BY window_start, window_end
-- name: w23
SELECT window_start, COUNT(*) FROM TABLE(HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '5' SECOND, SIZE => INTERVAL '10' SECOND)) GROUP BY window_start, window_end
-- name: w24
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '3' SECOND)) GROUP BY window_start, window_end
-- name: w25
SELECT window_start, window_end, MAX(n) AS mx FROM (SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end) GROUP BY window_start, window_end
-- name: w26
SELECT a.k, a.n, a.window_start FROM (SELECT k, COUNT(*) AS n, window_start, window_end FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end) a JOIN (SELECT MAX(n) AS mx, window_start, window_end FROM (SELECT k, COUNT(*) AS n, window_start, window_end FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end) GROUP BY window_start, window_end) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.n >= b.mx
-- name: w27
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), TUMBLE_END(ts, INTERVAL '1' MINUTE), TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE), COUNT(*) + 1, SUM(v) * 1.5, MAX(k) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
-- name: w28
SELECT CAST(window_start AS STRING) || '/' || k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE v IS NOT NULL GROUP BY window_start, window_end, k
-- name: w29
CREATE VIEW good AS SELECT *, UPPER(k) AS kk FROM t WHERE v > 0; SELECT window_start, kk, COUNT(*) FROM TABLE(TUMBLE(TABLE good, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, kk
-- name: h1
CREATE VIEW x AS SELECT id, k, v, tag FROM t CROSS JOIN UNNEST(tags) AS q(tag); SELECT tag, COUNT(DISTINCT k) FILTER (WHERE v > 2) AS c, SUM(DISTINCT v) AS s FROM x GROUP BY tag HAVING COUNT(*) FILTER (WHERE v IS NOT NULL) > 3 AND MAX(v) > 0
-- name: h2
SELECT k, sku, SUM(n), COUNT(n), COUNT(*) FROM t CROSS JOIN UNNEST(items) AS i(sku, n) GROUP BY GROUPING SETS ((k, sku), (sku), ())
-- name: h3
SELECT id, sku, n FROM t LEFT JOIN UNNEST(items) AS i(sku, n) ON TRUE WHERE id < 20
-- name: h4
SELECT id, mk, mv FROM t CROSS JOIN UNNEST(m) AS q(mk, mv)
-- name: h5
SELECT k, COUNT(*) FROM t GROUP BY k HAVING AVG(d) > (SELECT AVG(d) FROM t)
-- name: h6
SELECT r.y, r.q.z, COUNT(*), SUM(r.q.w), AVG(r.q.w) FROM t GROUP BY r.y, r.q.z
-- name: h7
SELECT id, t.r.q.w * 2, r.x + r.q.z, r.q FROM t WHERE r.q.z > 1 OR r.x IS NULL
-- name: h8
SELECT CASE WHEN v > 5 THEN 'hi' WHEN v > 0 THEN 'lo' END AS c, COUNT(*), SUM(CASE WHEN flag THEN 1 ELSE 0 END), COUNT(CASE WHEN d > 0 THEN 1 END) FROM t GROUP BY CASE WHEN v > 5 THEN 'hi' WHEN v > 0 THEN 'lo' END
-- name: h9
SELECT CASE v WHEN 1 THEN NULL WHEN 2 THEN 'two' ELSE CAST(v AS STRING) END, NULLIF(v, 3), COALESCE(NULL, v, 7), IFNULL(v, -1) FROM t
-- name: h10
SELECT amt * 1.5, amt / 3, amt + price, amt - 0.001, CAST(amt AS DECIMAL(5,1)), ROUND(amt, 1), ABS(amt), -amt, MOD(amt, 7), t.id, s.id FROM t JOIN s ON t.id = s.id
-- name: h11
SELECT SUM(amt), AVG(amt), MIN(amt), MAX(amt), SUM(amt * 2), COUNT(amt), SUM(amt) / COUNT(*), AVG(v), AVG(d) FROM t
-- name: h12
SELECT k, STDDEV_POP(v), VAR_SAMP(d), STDDEV_SAMP(d), VAR_POP(v) FROM t GROUP BY k
-- name: h13
SELECT SUM(b), AVG(b), MAX(b), MIN(b), SUM(CAST(b AS DECIMAL(20,0))) FROM t
-- name: h14
SELECT k, FIRST_VALUE(id), LAST_VALUE(id), COUNT(DISTINCT flag), MAX(ts), MIN(day0) FROM t GROUP BY k
-- name: h15
SELECT day0, EXTRACT(YEAR FROM day0), EXTRACT(MONTH FROM ts), DAYOFWEEK(day0), QUARTER(day0), TIMESTAMPDIFF(DAY, ts, CAST(day0 AS TIMESTAMP(3))), TIMESTAMPADD(HOUR, 5, ts), FLOOR(ts TO MINUTE), CEIL(ts TO HOUR), day0 + INTERVAL '1' MONTH FROM t
-- name: h16
SELECT id, arr[1], CARDINALITY(arr), ARRAY_CONTAINS(tags, 'x'), m['a'], CARDINALITY(m), ELEMENT(ARRAY[id]) FROM t
-- name: h17
SELECT note, note LIKE '%e%', note LIKE '\_%' , note SIMILAR TO '(red|blue).*', note LIKE 'b%^_1' ESCAPE '^', CHAR_LENGTH(note), UPPER(note), SUBSTRING(note, 2, 2), POSITION('e' IN note), TRIM(BOTH 'r' FROM note), REPLACE(note, 'e', 'E') FROM s
-- name: h18
SELECT id FROM t WHERE v IN (1, NULL)
-- name: h19
SELECT id FROM t WHERE v NOT IN (1, NULL)
-- name: h20
SELECT id FROM t WHERE k NOT IN (SELECT k FROM u WHERE grp = 1)
-- name: h21
SELECT id FROM t WHERE k NOT IN (SELECT k FROM u)
-- name: h22
SELECT id FROM t WHERE (k, v) IN (SELECT k, grp FROM u)
-- name: h23
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.qty > t.v)
-- name: h24
SELECT id FROM t WHERE EXISTS (SELECT * FROM s WHERE s.k = t.k AND s.qty = t.v AND s.price > 100) AND NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.grp = 2)
-- name: h25
SELECT k, n FROM (SELECT k, COUNT(*) n FROM t GROUP BY k) WHERE k IN (SELECT k FROM s GROUP BY k HAVING COUNT(*) > 15)
-- name: h26
SELECT id FROM t WHERE v > 3 OR k IN (SELECT k FROM u WHERE grp = 2)
-- name: h27
SELECT id, k IN (SELECT k FROM u WHERE grp = 1) AS x FROM t
-- name: h28
SELECT id, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.k = t.k) THEN 1 ELSE 0 END FROM t
-- name: h29
SELECT id, (SELECT MAX(grp) FROM u WHERE u.k = t.k) FROM t
-- name: h30
SELECT id, (SELECT name FROM u WHERE u.k = t.k) FROM t
-- name: h31
SELECT id, (SELECT COUNT(*) FROM u WHERE u.k = t.k AND grp > 1) AS c FROM t
-- name: h32
SELECT k, v, COUNT(*) FROM t WHERE v IS NULL OR v BETWEEN 1 AND 3 GROUP BY k, v
-- name: h33
SELECT flag IS TRUE, flag IS NOT TRUE, flag IS UNKNOWN, NOT flag, flag AND v > 3, flag OR v > 3, v IS DISTINCT FROM 3, v IS NOT DISTINCT FROM r.x FROM t
-- name: h34
SELECT COUNT(*), COUNT(v), COUNT(DISTINCT k), SUM(v) FILTER (WHERE k = 'zz') FROM t
-- name: h35
SELECT DISTINCT k, flag FROM t
-- name: h36
SELECT COUNT(DISTINCT k), COUNT(DISTINCT k) FILTER (WHERE v > 5), COUNT(DISTINCT v + 1) FROM t WHERE flag
-- name: o1
SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), COUNT(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t
-- name: o2
SELECT id, AVG(v) OVER w, MIN(d) OVER w, MAX(amt) OVER w, SUM(amt) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW)
-- name: o7
SELECT k, MAX(run) FROM (SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS run FROM t) GROUP BY k
-- name: o9
SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY p) IS NOT NULL FROM t
-- name: o12
SELECT id, v - LAG(v) OVER (PARTITION BY k ORDER BY ts) AS dv FROM t WHERE v > 0
-- name: o15
SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM late
-- name: o16
SELECT rt, k, n, SUM(n) OVER (PARTITION BY k ORDER BY rt ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (SELECT TUMBLE_ROWTIME(ts, INTERVAL '10' SECOND) AS rt, k, COUNT(*) AS n FROM t GROUP BY TUMBLE(ts, INTERVAL '10' SECOND), k)
-- name: j1
SELECT s.id, s.k, price * rate FROM s JOIN rates FOR SYSTEM_TIME AS OF s.ts ON s.k = rates.k
-- name: j2
SELECT s.k, COUNT(*), SUM(price * rate) FROM s LEFT JOIN rates FOR SYSTEM_TIME AS OF s.ts ON s.k = rates.k GROUP BY s.k
-- name: j3
SELECT TUMBLE_START(s.ts, INTERVAL '20' SECOND), s.k, SUM(price * rate) FROM s JOIN rates FOR SYSTEM_TIME AS OF s.ts ON s.k = rates.k GROUP BY TUMBLE(s.ts, INTERVAL '20' SECOND), s.k
-- name: j4
CREATE VIEW vr AS SELECT k, rate, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM rlog) WHERE rn = 1; SELECT s.id, price * vr.rate FROM s LEFT JOIN vr FOR SYSTEM_TIME AS OF s.ts ON s.k = vr.k
-- name: j5
SELECT a.id, b.id FROM t a JOIN s b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '2' SECOND AND b.ts + INTERVAL '1' SECOND
-- name: j6
SELECT a.id, b.id FROM t a LEFT JOIN s b ON a.k = b.k AND b.ts >= a.ts AND b.ts < a.ts + INTERVAL '3' SECOND AND b.qty > 1
-- name: j7
SELECT a.id, b.id FROM t a FULL OUTER JOIN s b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts
-- name: j8
SELECT TUMBLE_END(a.ts, INTERVAL '20' SECOND), COUNT(*), SUM(b.price) FROM t a JOIN s b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '2' SECOND AND b.ts GROUP BY TUMBLE(a.ts, INTERVAL '20' SECOND)
-- name: j9
SELECT t.id, u.name, s.id FROM t JOIN u ON t.k = u.k LEFT JOIN s ON s.k = u.k AND s.id = t.id + 1 WHERE t.v > 4
-- name: j11
SELECT u.name, COUNT(t.id), COALESCE(SUM(t.v), 0) FROM u LEFT JOIN t ON u.k = t.k AND t.v > 3 GROUP BY u.name
-- name: j12
SELECT a.k, b.k FROM u a FULL JOIN (SELECT DISTINCT k FROM t) b ON a.k = b.k
-- name: j13
SELECT a.name, b.name FROM u a, u b WHERE a.grp = b.grp AND a.name < b.name
-- name: j14
SELECT a.name, b.name FROM u a CROSS JOIN u b WHERE a.grp > b.grp
-- name: j15
SELECT a.name, b.name FROM u a LEFT JOIN u b ON a.grp > b.grp
-- name: j16
SELECT x.k, x.n, y.n FROM (SELECT k, COUNT(*) n FROM t GROUP BY k) x JOIN (SELECT k, COUNT(*) n FROM s GROUP BY k) y ON x.k = y.k WHERE x.n > y.n
-- name: j17
SELECT x.k, x.n, y.n FROM (SELECT k, COUNT(*) n FROM t GROUP BY k) x FULL JOIN (SELECT k, COUNT(*) n FROM s WHERE qty > 2 GROUP BY k) y ON x.k = y.k AND x.n > 20
-- name: j18
SELECT t.id, u.name FROM t RIGHT JOIN u ON t.k = u.k AND t.v = 9
-- name: j19
SELECT t.id, q.tag, u.name FROM t CROSS JOIN UNNEST(t.tags) AS q(tag) JOIN u ON u.k = t.k WHERE q.tag = 'x' AND u.grp = 1
-- name: s1
SELECT k, v FROM t WHERE v > 5 UNION ALL SELECT k, qty FROM s UNION ALL SELECT c, a FROM n1
-- name: s2
SELECT k FROM t UNION SELECT k FROM s EXCEPT SELECT k FROM u
-- name: s3
SELECT a, c FROM n1 UNION SELECT a, c FROM n2
-- name: s4
SELECT k, COUNT(*) FROM (SELECT k, ts FROM t UNION ALL SELECT k, ts FROM s) GROUP BY k, TUMBLE(ts, INTERVAL '30' SECOND)
-- name: s5
CREATE VIEW x AS SELECT a, c FROM n1; CREATE VIEW y AS SELECT a, c FROM n2; CREATE VIEW z AS SELECT * FROM x UNION ALL SELECT * FROM y; SELECT a, c, COUNT(*) FROM z GROUP BY a, c
-- name: s6
SELECT v, amt FROM t UNION ALL SELECT qty, price FROM s
-- name: s7
SELECT CAST(v AS BIGINT) AS x FROM t INTERSECT SELECT qty FROM s
-- name: s8
(SELECT k FROM t) UNION (SELECT k FROM s)
-- name: s9
SELECT k, n FROM (SELECT k, COUNT(*) n FROM t GROUP BY k) UNION ALL SELECT 'all', COUNT(*) FROM t
-- name: s10
SELECT id FROM t UNION ALL SELECT id FROM s ORDER BY id LIMIT 5
-- name: m1
CREATE VIEW x AS SELECT id, k, v, ts FROM t WHERE v IS NOT NULL; SELECT * FROM x MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, LAST(B.id) AS b, COUNT(B.id) AS n, SUM(B.v) AS sv, AVG(B.v) AS av, C.ts AS ct ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) DEFINE A AS A.v > 5, B AS B.v <= 5, C AS C.v > 5)
-- name: m2
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, LAST(B.id) AS b ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+? C) WITHIN INTERVAL '20' SECOND DEFINE B AS B.v < A.v, C AS C.v > LAST(B.v, 1))
-- name: m3
SELECT k, a, b FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(A.id) AS a, LAST(A.id) AS b AFTER MATCH SKIP PAST LAST ROW PATTERN (A{2,3} B) DEFINE A AS A.v > 0, B AS B.v <= 0)
-- name: m4
SELECT a, b FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.id AS a, B.id AS b, MATCH_ROWTIME() AS mt AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS flag, B AS NOT flag)
-- name: m5
SELECT TUMBLE_START(mt, INTERVAL '30' SECOND), COUNT(*) FROM (SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES MATCH_ROWTIME() AS mt, A.id AS a AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.v > 2, B AS B.v < 2)) GROUP BY TUMBLE(mt, INTERVAL '30' SECOND)
-- name: m7
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(A.id) AS x, SUM(A.v) AS sv AFTER MATCH SKIP TO LAST A PATTERN (S A+ B) DEFINE A AS SUM(A.v) < 12, B AS B.v > 0)
-- name: m8
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS x, B.id AS y PATTERN (A X? B) DEFINE A AS A.v BETWEEN 3 AND 5, B AS B.v = A.v, X AS X.v <> A.v)
-- name: m9
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS x, B.id AS y AFTER MATCH SKIP TO FIRST B PATTERN (A B) DEFINE A AS A.tags[1] = 'x', B AS CHAR_LENGTH(B.k) = 1 AND ABS(B.v) > 2)
-- name: sv1
SELECT id, (SELECT name FROM u WHERE grp = 2) FROM t
-- name: sv2
SELECT id FROM t WHERE v > (SELECT grp FROM u WHERE name = 'Bob')
-- name: sv3
SELECT id, (SELECT n FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) q WHERE q.k = t.k) FROM t
-- name: hv1
SELECT k, COUNT(*) FROM t GROUP BY k HAVING k IN (SELECT k FROM u WHERE grp = 1)
-- name: hv2
SELECT k, COUNT(*) FROM t GROUP BY k HAVING COUNT(*) NOT IN (SELECT grp FROM u WHERE grp IS NOT NULL)
-- name: hv4
SELECT k, MAX(v) FROM t GROUP BY k HAVING MAX(v) >= ALL (SELECT qty FROM s WHERE qty IS NOT NULL)
-- name: hv5
SELECT k, k IN (SELECT k FROM u WHERE grp = 1) AS f, COUNT(*) FROM t GROUP BY k
-- name: hv6
SELECT COUNT(*) FROM t WHERE v = ANY (SELECT qty FROM s) OR flag
-- name: qq3
SELECT id FROM t WHERE CASE WHEN k IN (SELECT k FROM u WHERE grp = 1) THEN v > 3 ELSE v < 0 END
-- name: qq4
SELECT id FROM t WHERE flag OR EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.qty = t.v)
-- name: qq5
SELECT id FROM t WHERE flag OR v IN (SELECT qty FROM s WHERE s.k = t.k)
-- name: qq6
SELECT id FROM t WHERE flag OR NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.qty = t.v)
-- name: qq7
SELECT id FROM t WHERE (v IN (SELECT qty FROM s) AND flag) OR (v NOT IN (SELECT grp FROM u WHERE grp IS NOT NULL) AND NOT flag)
-- name: qq8
SELECT k, SUM(CASE WHEN v IN (SELECT grp FROM u) THEN 1 ELSE 0 END) FROM t GROUP BY k
-- name: qq9
SELECT id FROM t WHERE v >= ALL (SELECT x.v FROM t AS x WHERE x.k = t.k AND x.v IS NOT NULL)
-- name: qq10
SELECT id FROM t o WHERE v > (SELECT AVG(i.v) FROM t i WHERE i.k = o.k)
-- name: qq11
SELECT id FROM t WHERE v IN (1, 2) AND id NOT IN (SELECT id FROM s WHERE price > 400)
-- name: qq12
SELECT id, k FROM t WHERE k IN (SELECT k FROM s GROUP BY k HAVING SUM(qty) > 20) AND v > ANY (SELECT AVG(qty) FROM s GROUP BY k)
-- name: la1
SELECT u.k, x.id, x.df FROM u, LATERAL (SELECT id, t.v - u.grp AS df FROM t WHERE t.k = u.k AND t.v > u.grp) AS x
-- name: la2
SELECT u.k, x.id, x.sid FROM u, LATERAL (SELECT t.id, s.id AS sid FROM t JOIN s ON t.id = s.id WHERE t.k = u.k) AS x
-- name: la3
SELECT u.name, x.k, x.n FROM u, LATERAL (SELECT k, COUNT(*) AS n FROM t WHERE t.v = u.grp GROUP BY k HAVING COUNT(*) > 1) AS x
-- name: la8
SELECT u.k, x.m FROM u LEFT JOIN LATERAL (SELECT MAX(v) AS m FROM t WHERE t.k = u.k AND t.v < 9) AS x ON u.grp = 1
-- name: la9
SELECT u.k, x.a, x.b FROM u, LATERAL (SELECT a.id, b.id FROM t a, s b WHERE a.k = u.k AND a.id = b.id) AS x(a, b)
-- name: la10
SELECT u.k, x.m, y.c FROM u, LATERAL (SELECT MAX(v) AS m FROM t WHERE t.k = u.k) AS x, LATERAL (SELECT COUNT(*) AS c FROM s WHERE s.k = u.k AND s.qty > 0) AS y
-- name: la11
SELECT u.k, x.id FROM u JOIN LATERAL (SELECT id FROM t WHERE t.k = u.k AND v = 9) AS x ON x.id > 10
-- name: x3
SELECT k, MAX(rn) FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t) GROUP BY k
-- name: x5
SELECT id, COUNT(DISTINCT v) OVER (PARTITION BY k ORDER BY ts), SUM(DISTINCT v) OVER (PARTITION BY k ORDER BY ts) FROM t
-- name: x6
SELECT id, COUNT(DISTINCT v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW), AVG(d) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW), AVG(amt) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW), STDDEV_POP(d) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) FROM t
-- name: x7
SELECT id, LISTAGG(note) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM s
-- name: x8
SELECT id, MAX(note) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), MIN(ts) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), MAX(price) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM s
-- name: x9
SELECT id, SUM(CASE WHEN flag THEN v ELSE 0 END) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) * 2 + id AS z FROM t WHERE v > -3
-- name: x10
SELECT id, FIRST_VALUE(v) OVER (PARTITION BY k ORDER BY ts), LAST_VALUE(v) OVER (PARTITION BY k ORDER BY ts) FROM t
-- name: x11
SELECT * FROM (SELECT id, k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY s DESC, id) AS rn FROM (SELECT id, k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM t)) WHERE rn <= 2
-- name: x13
SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts) FROM late
-- name: x14
SELECT id, ROW_NUMBER() OVER (ORDER BY ts) FROM late
-- name: y2
SELECT id, CARDINALITY(ARRAY[1,2]), ELEMENT(ARRAY[id]), ARRAY[v, id][2], MAP['a', v]['a'], arr[2], arr[9], tags[1] FROM t
-- name: y3
SELECT note SIMILAR TO 'b.*', note SIMILAR TO '(r|G)%', note SIMILAR TO '%[0-9]', note SIMILAR TO '_red', note SIMILAR TO 're+d', note SIMILAR TO 'blue\_1' FROM s WHERE note IS NOT NULL
-- name: y5
SELECT SPLIT_INDEX(note, 'e', 0), REGEXP_EXTRACT(note, '([a-z]+)(\d*)', 1), REGEXP_REPLACE(note, '[aeiou]', '*'), REGEXP(note, 'e+'), INITCAP(note), LPAD(note, 7, '-'), RPAD(note, 3, '-'), OVERLAY(note PLACING 'ZZ' FROM 2 FOR 1), REVERSE(note), LEFT(note, 2), RIGHT(note, 2), ASCII(note), MD5(note), INSTR(note, 'e'), LOCATE('e', note), REPEAT(note, 2) FROM s
-- name: z1
SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) CROSS JOIN UNNEST(ARRAY[1, 2]) AS x(a) WHERE a = 1
-- name: z2
SELECT a, SUM(n) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) CROSS JOIN UNNEST(ARRAY[1, 2]) AS x(a) GROUP BY a
-- name: z3
SELECT n, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY n
-- name: z4
SELECT MAX(n), MIN(n), SUM(DISTINCT n), AVG(n) FROM (SELECT k, flag, COUNT(*) AS n FROM t GROUP BY k, flag)
-- name: z6
SELECT * FROM (SELECT k, flag, sv, ROW_NUMBER() OVER (PARTITION BY flag ORDER BY sv DESC, k) AS rn FROM (SELECT k, flag, SUM(v) AS sv FROM t GROUP BY k, flag)) WHERE rn <= 2
-- name: z7
SELECT flag, SUM(sv) FROM (SELECT k, flag, sv FROM (SELECT k, flag, sv, ROW_NUMBER() OVER (PARTITION BY flag ORDER BY sv DESC, k) AS rn FROM (SELECT k, flag, SUM(v) AS sv FROM t GROUP BY k, flag)) WHERE rn <= 2) GROUP BY flag
-- name: z8
SELECT d.k, d.id, u.name FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) d JOIN u ON d.k = u.k WHERE d.rn = 1
-- name: z9
SELECT k, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, flag ORDER BY ts) AS rn FROM t) WHERE rn = 1 AND v > 0
-- name: z10
SELECT id, k, rn FROM (SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t WHERE v IS NOT NULL) WHERE rn <= 5 AND rn > 2
-- name: z11
SELECT id, k FROM (SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t WHERE v IS NOT NULL) WHERE rn = 2
-- name: z12
SELECT k, rn FROM (SELECT k, ROW_NUMBER() OVER (ORDER BY c DESC, k) AS rn, c FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k)) WHERE rn BETWEEN 2 AND 3
-- name: z13
SELECT COUNT(*) FROM (SELECT DISTINCT k, flag FROM t) WHERE flag
-- name: z14
SELECT x.k, x.c, r.rate FROM (SELECT k, COUNT(*) c FROM s GROUP BY k) x JOIN (SELECT k, rate FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM rlog) WHERE rn = 1) r ON x.k = r.k
-- name: z15
WITH a AS (SELECT k, SUM(v) AS s FROM t GROUP BY k), b AS (SELECT k, AVG(price) AS p FROM s GROUP BY k) SELECT a.k, a.s, b.p FROM a LEFT JOIN b ON a.k = b.k WHERE a.s > 20
-- name: z16
SELECT * FROM (SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v) WHERE (k, c) IN (SELECT k, MAX(c) FROM (SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v) GROUP BY k)
-- name: z17
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.grp = 1) OR NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k)
-- name: z18
SELECT TUMBLE_START(ts, INTERVAL '30' SECOND), COUNT(*) FROM t WHERE k IN (SELECT k FROM u WHERE grp = 1) GROUP BY TUMBLE(ts, INTERVAL '30' SECOND)
-- name: z19
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND)) WHERE k IN ('a', 'b') AND v NOT BETWEEN 2 AND 4 GROUP BY window_start, window_end HAVING COUNT(*) > 2
-- name: z20
SELECT t.k, u.name, TUMBLE_START(t.ts, INTERVAL '30' SECOND), COUNT(*) FROM t, u WHERE t.k = u.k GROUP BY t.k, u.name, TUMBLE(t.ts, INTERVAL '30' SECOND)
-- name: z21
SELECT u.name, window_start, n FROM (SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY k, window_start, window_end) w LEFT JOIN u ON w.k = u.k
-- name: z22
SELECT k, ws, n, LAG(n) OVER (PARTITION BY k ORDER BY rt) FROM (SELECT k, window_start AS ws, window_time AS rt, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end, window_time)
-- name: z23
SELECT * FROM (SELECT k, window_start AS ws, window_time AS rt, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end, window_time) MATCH_RECOGNIZE (PARTITION BY k ORDER BY rt MEASURES A.ws AS w1, B.n AS n2 AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.n > A.n)
-- name: z24
SELECT a.k, a.ws, b.id FROM (SELECT k, window_start AS ws, window_time AS rt, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end, window_time) a JOIN s b ON a.k = b.k AND b.ts BETWEEN a.rt AND a.rt + INTERVAL '3' SECOND
-- name: z25
SELECT a.id, x.rate FROM (SELECT id, k, ts FROM s WHERE qty > 0) a JOIN rates FOR SYSTEM_TIME AS OF a.ts AS x ON a.k = x.k WHERE x.rate > 1
-- name: z27
SELECT window_start, window_end, cnt, COUNT(*) FROM (SELECT window_start, window_end, k, COUNT(*) AS cnt FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND)) GROUP BY window_start, window_end, k) GROUP BY window_start, window_end, cnt
-- name: z28
SELECT window_start, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC, id) AS rn FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) WHERE flag) WHERE rn <= 3
-- name: z29
SELECT window_start, window_end, k, MAX(v), MIN(id) FROM (SELECT id, k, v, window_start, window_end FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE v > 0) GROUP BY window_start, window_end, k
-- name: z30
SELECT window_start, COUNT(DISTINCT k), SUM(v) FILTER (WHERE k = 'a'), LISTAGG(DISTINCT k) IS NULL FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end
-- name: z31
SELECT k, SUM(v) FROM (SELECT k, v FROM t UNION ALL SELECT k, qty FROM s WHERE qty > 1) GROUP BY k HAVING SUM(v) > 20
-- name: z32
SELECT k, COUNT(*) FROM (SELECT k, v FROM t UNION SELECT k, qty FROM s) GROUP BY k
-- name: z33
SELECT name FROM u WHERE grp = (SELECT MIN(grp) FROM u)
-- name: z34
SELECT k FROM (SELECT k FROM t WHERE v > 5 INTERSECT SELECT k FROM s WHERE qty = 3) EXCEPT SELECT k FROM u WHERE grp = 2
-- name: z35
SELECT a.k, SUM(a.v * b.qty) FROM t a JOIN s b ON a.k = b.k AND a.id = b.id GROUP BY a.k
-- name: z36
SELECT t.id, s.id FROM t JOIN s ON t.k = s.k AND (t.v = s.qty OR t.id = s.id)
-- name: z37
SELECT t.id, u.name FROM t JOIN u ON UPPER(t.k) = UPPER(u.k) AND t.v + 1 = u.grp
-- name: z38
SELECT id FROM t LEFT JOIN u ON t.k = u.k WHERE u.k IS NULL
-- name: z40
SELECT HOP_START(ts, INTERVAL '10' SECOND, INTERVAL '30' SECOND), HOP_END(ts, INTERVAL '10' SECOND, INTERVAL '30' SECOND), CASE WHEN v > 3 THEN 'hi' ELSE 'lo' END, COUNT(*) FROM t GROUP BY HOP(ts, INTERVAL '10' SECOND, INTERVAL '30' SECOND), CASE WHEN v > 3 THEN 'hi' ELSE 'lo' END
-- name: mm1
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES UPPER(A.k) AS ak, CASE WHEN A.v > 5 THEN 'big' ELSE 'small' END AS sz, A.d + B.d AS sd, A.amt * 2 AS am AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.v > 2 AND A.k IN ('a', 'b'), B AS B.v < 2 OR B.v IS NULL)
-- name: mm2
SELECT k, n, mv, av, fd FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES COUNT(*) AS n, MAX(A.v) AS mv, AVG(A.d) AS av, FIRST(A.id, 1) AS fd AFTER MATCH SKIP PAST LAST ROW PATTERN (A{2,} B) DEFINE A AS A.v >= 0, B AS B.v < 0)
-- name: mm3
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES SUM(A.v * 2) AS s2, SUM(A.amt) AS sa, MIN(A.amt) AS ma, LAST(A.ts) - INTERVAL '1' SECOND AS lt AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS A.v > 1, B AS B.v <= 1 AND B.v < FIRST(A.v))
-- name: mm5
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, B.id AS b, C.id AS c AFTER MATCH SKIP PAST LAST ROW PATTERN (A B? C) DEFINE A AS A.v > 4, B AS B.v < 0, C AS C.v BETWEEN 0 AND 4)
-- name: mm6
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k, flag ORDER BY ts MEASURES FIRST(A.ts) AS fs, LAST(A.ts) AS ls, TIMESTAMPDIFF(SECOND, FIRST(A.ts), LAST(A.ts)) AS dur AFTER MATCH SKIP PAST LAST ROW PATTERN (A{3}) DEFINE A AS LAST(A.v, 1) IS NULL OR A.v > LAST(A.v, 1))
-- name: mm7
SELECT a, b FROM late MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, B.id AS b AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.v > 4, B AS B.v < 4)
-- name: mm8
SELECT k, COUNT(*), SUM(n) FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES COUNT(A.id) AS n AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS A.v > 2) GROUP BY k
-- name: mm9
SELECT M.k, M.a, u.name FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.v > 2, B AS NOT B.flag) AS M JOIN u ON M.k = u.k
-- name: mm10
SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES S.id AS s, LAST(UP.id) AS u AFTER MATCH SKIP TO LAST UP PATTERN (S DOWN+ UP) DEFINE DOWN AS (LAST(DOWN.v, 1) IS NULL AND DOWN.v < S.v) OR DOWN.v < LAST(DOWN.v, 1), UP AS UP.v > LAST(DOWN.v))
-- name: p1
SELECT id, ELEMENT(ARRAY[id]), arr[2], tags[1], m['a'], CARDINALITY(m) FROM t
-- name: p2
(SELECT k FROM t) UNION ALL (SELECT k FROM s) ORDER BY k LIMIT 5
-- name: p3
SELECT a, c FROM n1 UNION SELECT a, c FROM n2 ORDER BY a DESC, c LIMIT 3
-- name: p4
SELECT k, v FROM ((SELECT k, v FROM t WHERE v > 7) UNION ALL (SELECT k, qty FROM s WHERE qty = 3)) WHERE k = 'a'
-- name: p5
SELECT k, STDDEV_POP(v), STDDEV_POP(amt), VAR_SAMP(amt), AVG(CAST(v AS SMALLINT)) FROM t GROUP BY k
-- name: p6
SELECT id, SIGN(d), SIGN(v), SIGN(amt), ABS(d), ROUND(amt), FLOOR(amt), CEIL(amt), TRUNCATE(amt, 1), ROUND(v, -1) FROM t
-- name: p7
SELECT id, k, window_start, window_end FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND)) WHERE v > 2
-- name: p8
SELECT k, cnt, COUNT(*) FROM (SELECT k, id, COUNT(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS cnt FROM t) GROUP BY k, cnt
-- name: p11
CREATE VIEW e AS SELECT s.k, s.ts, price * rate AS amount FROM s JOIN rates FOR SYSTEM_TIME AS OF s.ts ON s.k = rates.k; SELECT k, window_start, MAX(amount), COUNT(*) FROM TABLE(HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '30' SECOND)) GROUP BY k, window_start, window_end
-- name: p12
SELECT window_start, window_end, k, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY s DESC, k) rn FROM (SELECT window_start, window_end, k, SUM(v) s FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '30' SECOND)) WHERE flag GROUP BY window_start, window_end, k)) WHERE rn = 1
-- name: p13
SELECT k, SUM(CASE WHEN v IS NULL THEN 1 END), SUM(v) / NULLIF(COUNT(v), 0), COUNT(*) - COUNT(v), MAX(amt) - MIN(amt), CAST(SUM(v) AS DOUBLE) / COUNT(*) FROM t GROUP BY k HAVING SUM(v) IS NOT NULL ORDER BY k LIMIT 10
-- name: p14
SELECT a.window_start, a.window_end, COALESCE(a.k, b.k), a.n, b.n FROM (SELECT window_start, window_end, k, COUNT(*) n FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) GROUP BY window_start, window_end, k) a RIGHT JOIN (SELECT window_start, window_end, k, COUNT(*) n FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) GROUP BY window_start, window_end, k) b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end
-- name: p16
SELECT id, ord, tag FROM t CROSS JOIN UNNEST(tags) WITH ORDINALITY AS q(tag, ord)
-- name: p17
SELECT DATE_FORMAT(ts, 'HH:mm') AS mi, COUNT(*), COUNT(DISTINCT k) FROM t GROUP BY DATE_FORMAT(ts, 'HH:mm')
-- name: p18
SELECT TUMBLE_START(ts, INTERVAL '30' SECOND) AS ws, k, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((TUMBLE(ts, INTERVAL '30' SECOND), k))
-- name: p19
SELECT k, LISTAGG(CAST(id AS STRING), '|') FROM (SELECT * FROM t WHERE id < 15) GROUP BY k
-- name: p20
SELECT s.id, COALESCE(r.rate, 1) * s.price FROM s LEFT JOIN rates FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k AND r.rate > 1.2 WHERE s.qty IS NOT NULL
-- name: p21
SELECT window_start, window_end, window_time, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end, window_time
-- name: p22
SELECT HOUR(ts), SUM(v) FROM t GROUP BY HOUR(ts) HAVING COUNT(*) > 1
-- name: p23
SELECT id FROM t WHERE ts BETWEEN TIMESTAMP '2024-01-01 00:00:10' AND TIMESTAMP '2024-01-01 00:00:20' AND day0 > DATE '2024-01-01'
-- name: p24
SELECT a.id, b.id, c.id FROM t a JOIN s b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND JOIN late c ON b.k = c.k AND c.id = b.id
-- name: p25
SELECT k, n, r FROM (SELECT k, n, ROW_NUMBER() OVER (ORDER BY n DESC, k) AS r FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k)) WHERE r <= 3
-- name: p26
SELECT k, SUM(amt) AS total FROM t WHERE amt > (SELECT AVG(amt) FROM t) GROUP BY k
-- name: p27
SELECT id, k FROM (SELECT DISTINCT id, k FROM t UNION ALL SELECT id, k FROM s) x WHERE EXISTS (SELECT 1 FROM u WHERE u.k = x.k AND u.grp = 2)
-- name: p29
SELECT id, v FROM t WHERE (v, k) IN ((1, 'a'), (2, 'b'), (9, 'c'))
-- name: r1
CREATE TABLE c1 (id INT, k STRING, v INT, ts TIMESTAMP(3), e AS TIMESTAMPADD(SECOND, 5, ts), kk AS UPPER(k) || '_' || CAST(v AS STRING), WATERMARK FOR e AS e - INTERVAL '3' SECOND) WITH ('connector'='filesystem','path'='${DATA}/t.ndjson','format'='json'); SELECT TUMBLE_START(e, INTERVAL '20' SECOND), kk, COUNT(*) FROM c1 WHERE v > 5 GROUP BY TUMBLE(e, INTERVAL '20' SECOND), kk
-- name: r2
CREATE VIEW a1 AS SELECT k, v, ts FROM t WHERE v IS NOT NULL UNION ALL SELECT k, qty, ts FROM s WHERE qty IS NOT NULL; SELECT window_start, k, SUM(v), COUNT(*) FROM TABLE(TUMBLE(TABLE a1, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, k
-- name: r3
CREATE VIEW a1 (kk, vv, tt) AS SELECT k, v, ts FROM t; CREATE VIEW a2 AS SELECT kk, vv, tt, ROW_NUMBER() OVER (PARTITION BY kk ORDER BY tt DESC) AS rn FROM a1; SELECT kk, vv FROM a2 WHERE rn = 1
-- name: r4
SELECT COUNT(*) AS c, CAST(AVG(v) AS DECIMAL(6,2)), SUM(v) FILTER (WHERE flag IS NOT TRUE), MAX(CASE WHEN flag THEN k END) FROM t HAVING COUNT(*) > 10
-- name: r5
SELECT k, COUNT(*) FROM (SELECT k, v FROM t GROUP BY k, v) GROUP BY k
-- name: r7
SELECT s.k, s.id, r.rate, ROW_NUMBER() OVER (PARTITION BY s.k ORDER BY s.ts) FROM s JOIN rates FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k
-- name: r8
SELECT k, id, amount FROM (SELECT s.k, s.id, price * rate AS amount, ROW_NUMBER() OVER (PARTITION BY s.k ORDER BY price * rate DESC, s.id) AS rn FROM s JOIN rates FOR SYSTEM_TIME AS OF s.ts ON s.k = rates.k) WHERE rn <= 2
-- name: r9
SELECT window_start, k, n FROM (SELECT window_start, window_end, k, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY COUNT(*) DESC, k) AS rn FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end, k) WHERE rn <= 2
-- name: r10
SELECT k, n FROM (SELECT k, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, k) AS rn FROM t GROUP BY k) WHERE rn <= 2
-- name: r11
SELECT k, FLOOR(ts TO MINUTE) AS m, COUNT(*), COUNT(DISTINCT v) FROM t GROUP BY k, FLOOR(ts TO MINUTE)
-- name: r13
SELECT id, CASE WHEN v IN (SELECT grp FROM u WHERE grp IS NOT NULL) THEN 'in' WHEN v > (SELECT MAX(qty) FROM s) THEN 'big' ELSE 'no' END AS c FROM t
-- name: r14
SELECT k, SUM(n) FROM (SELECT k, 1 AS n FROM t UNION ALL SELECT k, COUNT(*) AS n FROM s GROUP BY k) GROUP BY k
-- name: r15
SELECT k, COUNT(*) FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k GROUP BY s.k HAVING COUNT(*) > 15) GROUP BY k
-- name: r16
SELECT t.id, x.c FROM t LEFT JOIN (SELECT k, COUNT(*) AS c FROM s WHERE qty > 1 GROUP BY k HAVING COUNT(*) > 5) x ON t.k = x.k WHERE t.v = 9
-- name: r17
SELECT t.id, i.sku, i.n, u.name FROM t CROSS JOIN UNNEST(items) AS i(sku, n) LEFT JOIN u ON t.k = u.k AND i.n = u.grp
-- name: r18
SELECT DISTINCT window_start, k FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) WHERE v > 6
-- name: r19
SELECT k, window_start, window_end, n FROM (SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND)) GROUP BY k, window_start, window_end) WHERE n >= 3
-- name: r20
SELECT * FROM (SELECT k, window_start, window_end, v, id, ROW_NUMBER() OVER (PARTITION BY k, window_start, window_end ORDER BY v DESC, id) AS rn FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '4' SECOND))) WHERE rn = 1
-- name: r21
SELECT u.name, SUM(a.v), COUNT(DISTINCT a.id) FROM (SELECT id, k, v FROM t WHERE v > 0 INTERSECT SELECT id, k, v FROM t WHERE flag) a JOIN u ON a.k = u.k GROUP BY u.name
-- name: r22
SELECT k, SUM(price * qty) AS rev, SUM(price) / COUNT(*) AS ap, CAST(SUM(price * qty) AS DECIMAL(10,1)) FROM s WHERE note IS DISTINCT FROM 'red' GROUP BY k
-- name: r23
SELECT COALESCE(k, 'none') AS kk, SUM(v) FROM t GROUP BY COALESCE(k, 'none') ORDER BY SUM(v) DESC LIMIT 3
-- name: r24
SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC, k FETCH FIRST 2 ROWS ONLY
-- name: r26
SELECT x.ws, COUNT(*), MAX(x.n) FROM (SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS ws, TUMBLE_ROWTIME(ts, INTERVAL '10' SECOND) AS rt, k, COUNT(*) AS n FROM t GROUP BY TUMBLE(ts, INTERVAL '10' SECOND), k) x GROUP BY x.ws, TUMBLE(x.rt, INTERVAL '10' SECOND)
-- name: r27
SELECT SESSION_START(ts, INTERVAL '3' SECOND) AS st, SESSION_END(ts, INTERVAL '3' SECOND) AS en, k, COUNT(*), MIN(amt), MAX(amt) FROM t GROUP BY k, SESSION(ts, INTERVAL '3' SECOND) HAVING COUNT(*) > 1
-- name: r28
SELECT id, m['a'] + COALESCE(m['b'], 0), r.q.w, items[1].sku, CARDINALITY(items), arr[1] + arr[2] FROM t WHERE CARDINALITY(items) > 0 OR m IS NOT NULL
-- name: r29
SELECT a.k, COUNT(*) FROM t a, t b, u WHERE a.k = b.k AND a.id + 1 = b.id AND u.k = a.k AND b.v > a.v GROUP BY a.k
-- name: r30
WITH x AS (SELECT k, v, ts FROM t), y AS (SELECT window_start AS ws, window_end AS we, k, SUM(v) AS sv FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end, k) SELECT y.ws, y.k, y.sv FROM y WHERE y.sv > (SELECT AVG(v) FROM x)
-- name: c1
SELECT CAST(r AS STRING), CAST(arr AS STRING), CAST(tags AS STRING), CAST(amt AS STRING), CAST(ROW(id, k) AS STRING) FROM t
-- name: c2
SELECT id, ord, tag FROM t LEFT JOIN UNNEST(tags) WITH ORDINALITY AS q(tag, ord) ON TRUE
-- name: c3
SELECT id, ord, sku, n FROM t CROSS JOIN UNNEST(items) WITH ORDINALITY AS q(sku, n, ord)
-- name: v1
CREATE VIEW x AS SELECT id, k, ts, tag FROM t CROSS JOIN UNNEST(tags) AS q(tag); SELECT window_start, tag, COUNT(*), COUNT(DISTINCT k) FROM TABLE(TUMBLE(TABLE x, DESCRIPTOR(ts), INTERVAL '30' SECOND)) GROUP BY window_start, window_end, tag HAVING COUNT(*) > 1
-- name: v2
CREATE VIEW x AS SELECT k, v, ts FROM t WHERE flag UNION ALL SELECT k, qty, ts FROM s; SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS sv FROM x WHERE k = 'zz' OR v > 8
-- name: v3
SELECT window_start, id, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY ts) AS rn FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '30' SECOND))) WHERE rn = 1
-- name: v4
SELECT window_start, window_end, flag, k, SUM(v), GROUPING_ID(flag, k) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '15' SECOND, INTERVAL '30' SECOND)) GROUP BY window_start, window_end, GROUPING SETS ((flag), (k), ()) HAVING SUM(v) > 5
-- name: v6
SELECT w.window_start, w.k, w.n FROM (SELECT window_start, window_end, k, COUNT(*) n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end, k) w WHERE w.n = (SELECT MAX(n) FROM (SELECT window_start, window_end, k, COUNT(*) n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND)) GROUP BY window_start, window_end, k) m WHERE m.window_start = w.window_start)
-- name: v7
SELECT k, COUNT(*) AS c, SUM(x) FROM (SELECT t.k, q.x FROM t LEFT JOIN UNNEST(arr) AS q(x) ON TRUE) GROUP BY k
-- name: v8
SELECT a.id, a.k, x.cnt FROM t a LEFT JOIN LATERAL (SELECT COUNT(*) AS cnt, MAX(price) AS mp FROM s WHERE s.k = a.k AND s.qty > 1) AS x ON TRUE WHERE a.v > 7
-- name: v9
SELECT k, MAX(c) FROM (SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v HAVING COUNT(*) > 1) GROUP BY k
-- name: v10
SELECT o.k, o.v, o.ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM t) o WHERE o.rn = 1 AND o.k IS NOT NULL
-- name: v11
SELECT d.k, COUNT(*) FROM (SELECT k, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts) AS rn FROM t) WHERE rn = 1) d GROUP BY d.k
-- name: v12
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) ws, COUNT(*) FROM (SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts) AS rn FROM t) WHERE rn = 1) GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
-- name: v13
SELECT k, v FROM t WHERE v > 6 EXCEPT ALL SELECT k, qty FROM s
-- name: v14
SELECT COUNT(*) FROM (SELECT k FROM t EXCEPT ALL SELECT k FROM s WHERE qty > 0) x
-- name: v16
SELECT a.k, a.n FROM (SELECT k, COUNT(*) n FROM t GROUP BY k) a WHERE a.n > ALL (SELECT COUNT(*) FROM s GROUP BY k)
-- name: v17
SELECT window_start, AVG(amt), MAX(price) FROM (SELECT a.window_start, a.window_end, a.amt, b.price FROM (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND))) a JOIN (SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '30' SECOND))) b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k) GROUP BY window_start, window_end
-- name: v18
SELECT k, flag, LISTAGG(y, '+') FROM (SELECT k, flag, r.y AS y FROM t WHERE id < 10) GROUP BY k, flag
-- name: v19
SELECT CASE WHEN GROUPING(k) = 1 THEN 'ALL' ELSE COALESCE(k, 'NULL') END AS kk, COUNT(*), SUM(amt) FROM t GROUP BY ROLLUP (k)
-- name: v20
SELECT id, k, v, CASE WHEN v > AVG(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) THEN 'up' ELSE 'down' END AS dir FROM t WHERE v IS NOT NULL
-- name: d1
SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts) AS rn FROM late) WHERE rn = 1
-- name: d2
SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts DESC) AS rn FROM late) WHERE rn = 1
-- name: d3
SELECT TUMBLE_START(ts, INTERVAL '20' SECOND) ws, k, COUNT(*) FROM (SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, v ORDER BY ts) AS rn FROM late) WHERE rn = 1) GROUP BY TUMBLE(ts, INTERVAL '20' SECOND), k
-- name: float_1
SELECT id, f + g, f - g, f * g, f / g, f + i, f * i, f / i, i / f, i - f FROM fl
-- name: float_2
SELECT id, f + b, b * f, f + s, f * e, f + e, f + 1, f * 2, f / 3, 1 / f, f * CAST(2 AS TINYINT), f / 0 FROM fl
-- name: float_3
SELECT id, f * 1.5, f + 0.1, 1e0 + f, d + f, -f, (f + 1) / 2, f * f * f, f + g + i, f * 2.0 + g, 2 * f - 1 FROM fl
-- name: float_4
SELECT id, ABS(f), CEIL(f), FLOOR(f), ROUND(f), SIGN(f), SQRT(f), POWER(f, f), PI() * f FROM fl WHERE id <> 4
-- name: float_5
SELECT id, ROUND(f, 1), TRUNCATE(f, 1), ROUND(g * 3, 2) FROM fl WHERE id IN (1, 2, 4, 7)
-- name: float_6
SELECT id, GREATEST(f, g), LEAST(f, i), GREATEST(f, d), COALESCE(f, i), COALESCE(f, d), COALESCE(f, 0), COALESCE(f, 0.5), COALESCE(f, b), IFNULL(f, i) FROM fl
-- name: float_7
SELECT id, CASE WHEN id > 3 THEN f ELSE g END, CASE WHEN id > 3 THEN f ELSE i END, CASE WHEN id > 3 THEN f ELSE b END, CASE WHEN id > 3 THEN f ELSE e END, CASE WHEN id > 3 THEN f ELSE 0.1 END, CASE WHEN id > 3 THEN d ELSE f END, IF(id > 3, f, i) FROM fl
-- name: float_8
SELECT id, f = 0.1, 0.1 = f, f > 0.3, f <= 1.1, f <> 1.1, f >= 0.1 AND f <= 1.1, f BETWEEN 0.1 AND 1.1, f = CAST(0.1 AS FLOAT), f = -2.5, f = 16777217, f = i, f < b, f = e, d = f FROM fl
-- name: float_9
SELECT id, f IN (0.1), f IN (0.1, 0.3), f NOT IN (0.1), f NOT IN (0.1, 1.1), f IN (g, 0.1), d IN (0.1, 1.1), f = 0.1 OR f = 1.1 FROM fl
-- name: float_10
SELECT id FROM fl WHERE f IN (0.1, 1.1, 0.3)
-- name: float_11
SELECT id FROM fl WHERE f = 0.1
-- name: float_12
SELECT k, SUM(f), AVG(f), MIN(f), MAX(f), SUM(f + i), AVG(f * 2), SUM(DISTINCT g), SUM(f) / COUNT(f), SUM(g) FROM fl WHERE id <> 5 GROUP BY k
-- name: float_13
SELECT SUM(g), AVG(g), MIN(g), MAX(g), STDDEV_POP(g), STDDEV_SAMP(g), VAR_POP(g), VAR_SAMP(g), SUM(DISTINCT g), SUM(g) / COUNT(g), AVG(DISTINCT g) FROM fl
-- name: float_14
SELECT x.id, y.id FROM fl x JOIN fl y ON x.f = y.i
-- name: float_15
SELECT x.id, y.id FROM fl x JOIN fl y ON y.e = x.f
-- name: float_16
SELECT f FROM fl UNION ALL SELECT i FROM fl
-- name: float_17
SELECT f FROM fl UNION ALL SELECT e FROM fl
-- name: float_18
SELECT d FROM fl UNION ALL SELECT f FROM fl
-- name: float_19
SELECT id, CAST(f AS DOUBLE), CAST(f * f AS DOUBLE), CAST(f AS INT), CAST(d AS FLOAT), CAST(e AS FLOAT), CAST(f AS DECIMAL(30, 3)) FROM fl WHERE id <> 5
-- name: float_20
SELECT f + i, COUNT(*) FROM fl GROUP BY f + i HAVING SUM(f) < 100
-- name: float_21
SELECT window_start, SUM(f), AVG(f) FROM (SELECT * FROM TABLE(TUMBLE(TABLE flt, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) GROUP BY window_start, window_end
-- name: float_22
SELECT id, SUM(f) OVER w, AVG(f) OVER w, MAX(f) OVER w FROM flt WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
