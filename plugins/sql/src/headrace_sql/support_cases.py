# ruff: noqa: E501  # tables of texts
"""What Flink's documentation has, each with a text that is run: read by the page of support and by its test.

The answers of functions are those that Flink's documentation gives, or follow from it. A row whose answer here is another one has a
note that says why.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A statement, clause or function, and a text that uses it.

    ``answer``: of a function what Flink gives, as text; ``None`` is NULL. ``why``: why the answer here is another one.
    A statement or query has no stored answer: the page shows the rows, or the refusal, of running it.
    """

    name: str
    text: str
    answer: str | None = ""
    why: str = ""


SCALARS: dict[str, tuple[Case, ...]] = {
    "Comparison": (
        Case("=, <>, <, <=, >, >=", "1 = 1 AND 1 <> 2 AND 1 < 2 AND 2 <= 2 AND 3 > 2 AND 2 >= 2", "TRUE"),
        Case("IS [NOT] NULL", "CAST(NULL AS INT) IS NULL AND 1 IS NOT NULL", "TRUE"),
        Case("IS [NOT] DISTINCT FROM", "1 IS DISTINCT FROM CAST(NULL AS INT)", "TRUE"),
        Case("BETWEEN", "2 BETWEEN 1 AND 3", "TRUE"),
        Case("BETWEEN SYMMETRIC", "12 BETWEEN SYMMETRIC 15 AND 12", "TRUE"),
        Case("[NOT] LIKE … ESCAPE", "'a_b' LIKE 'a!_b' ESCAPE '!'", "TRUE"),
        Case("[NOT] SIMILAR TO", "'abc' SIMILAR TO 'a(b|d)c'", "TRUE"),
        Case("[NOT] IN (…)", "4 IN (1, 2, CAST(NULL AS INT))", None),
    ),
    "Logic": (
        Case("OR, AND, NOT", "TRUE OR NOT (TRUE AND FALSE)", "TRUE"),
        Case("IS [NOT] TRUE, FALSE, UNKNOWN", "CAST(NULL AS BOOLEAN) IS UNKNOWN AND TRUE IS NOT FALSE", "TRUE"),
    ),
    "Arithmetic": (
        Case("+, -, *, /, %", "(1 + 2) * 3 - 7 / 2 + 7 % 4", "9"),
        Case("ABS", "ABS(-5)", "5"), Case("ACOS", "ACOS(1)", "0.0"), Case("ASIN", "ASIN(0)", "0.0"),
        Case("ATAN", "ATAN(0)", "0.0"), Case("ATAN2", "ATAN2(0, 1)", "0.0"), Case("BIN", "BIN(12)", "1100"),
        Case("CEIL, CEILING", "CEILING(1.2)", "2"), Case("COS", "COS(0)", "1.0"), Case("COSH", "COSH(0)", "1.0"),
        Case("COT", "ROUND(COT(1), 4)", "0.6421"), Case("DEGREES", "DEGREES(0)", "0.0"), Case("E", "E() > 2.71", "TRUE"),
        Case("EXP", "EXP(0)", "1.0"), Case("FLOOR", "FLOOR(1.8)", "1"), Case("HEX", "HEX(100)", "64"),
        Case("LN", "LN(1)", "0.0"), Case("LOG", "LOG(2, 8)", "3.0"), Case("LOG10", "LOG10(100)", "2.0"),
        Case("LOG2", "LOG2(8)", "3.0"), Case("MOD", "MOD(-7, 3)", "-1"), Case("PI", "PI() > 3.14", "TRUE"),
        Case("POWER", "POWER(2, 10)", "1024.0"), Case("RADIANS", "RADIANS(0)", "0.0"),
        Case("RAND", "RAND() < 1", "TRUE"), Case("RAND_INTEGER", "RAND_INTEGER(1)", "0"),
        Case("ROUND", "ROUND(2.345, 2)", "2.35"), Case("SIGN", "SIGN(-3)", "-1"), Case("SIN", "SIN(0)", "0.0"),
        Case("SINH", "SINH(0)", "0.0"), Case("SQRT", "SQRT(9)", "3.0"), Case("TAN", "TAN(0)", "0.0"),
        Case("TANH", "TANH(0)", "0.0"), Case("TRUNCATE", "TRUNCATE(42.324, 2)", "42.32"), Case("UNHEX", "UNHEX('616263')", "b'abc'"),
        Case("UUID", "CHAR_LENGTH(UUID())", "36"),
    ),
    "Text": (
        Case("||", "'a' || 'b'", "ab"), Case("ASCII", "ASCII('abc')", "97"), Case("BTRIM", "BTRIM('xxaxx', 'x')", "a"),
        Case("CHAR_LENGTH, CHARACTER_LENGTH", "CHARACTER_LENGTH('abc')", "3"), Case("CHR", "CHR(97)", "a"),
        Case("CONCAT", "CONCAT('AA', 'BB', 'CC')", "AABBCC"), Case("CONCAT_WS", "CONCAT_WS('~', 'AA', CAST(NULL AS STRING), 'BB', '', 'CC')", "AA~BB~~CC"),
        Case("DECODE", "DECODE(ENCODE('a', 'UTF-8'), 'UTF-8')", "a"), Case("ENCODE", "ENCODE('a', 'UTF-8')", "b'a'"),
        Case("ELT", "ELT(2, 'a', 'b')", "b"), Case("ENDSWITH", "ENDSWITH('abc', 'bc')", "TRUE"),
        Case("FROM_BASE64", "FROM_BASE64('aGVsbG8gd29ybGQ=')", "hello world"), Case("INITCAP", "INITCAP('aB cD')", "Ab Cd"),
        Case("INSTR", "INSTR('abcb', 'b')", "2"), Case("IS_ALPHA", "IS_ALPHA('ab')", "TRUE"),
        Case("IS_DECIMAL", "IS_DECIMAL('1.5')", "TRUE"), Case("IS_DIGIT", "IS_DIGIT('15')", "TRUE"), Case("LEFT", "LEFT('abc', 2)", "ab"),
        Case("LOCATE", "LOCATE('b', 'abcb', 3)", "4"), Case("LOWER", "LOWER('AB')", "ab"), Case("LPAD", "LPAD('hi', 4, '??')", "??hi"),
        Case("LTRIM", "LTRIM(' a')", "a"), Case("MD5", "MD5('')", "d41d8cd98f00b204e9800998ecf8427e"),
        Case("OVERLAY", "OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)", "xxxxxxxxx"),
        Case("PARSE_URL", "PARSE_URL('http://f.com/p?k1=v1', 'QUERY', 'k1')", "v1"), Case("POSITION", "POSITION('b' IN 'abc')", "2"),
        Case("PRINTF", "PRINTF('%d', 5)", "5"), Case("REGEXP", "REGEXP('foobar', 'o+')", "TRUE"),
        Case("REGEXP_COUNT", "REGEXP_COUNT('foobar', 'o')", "2"), Case("REGEXP_EXTRACT", "REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
        Case("REGEXP_EXTRACT_ALL", "REGEXP_EXTRACT_ALL('a1b2', '[0-9]', 0)", "['1', '2']"), Case("REGEXP_INSTR", "REGEXP_INSTR('foobar', 'b')", "4"),
        Case("REGEXP_REPLACE", "REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb"), Case("REGEXP_SUBSTR", "REGEXP_SUBSTR('foobar', 'o+')", "oo"),
        Case("REPEAT", "REPEAT('ab', 2)", "abab"), Case("REPLACE", "REPLACE('hello world', 'world', 'flink')", "hello flink"),
        Case("REVERSE", "REVERSE('abc')", "cba"), Case("RIGHT", "RIGHT('abc', 2)", "bc"), Case("RPAD", "RPAD('hi', 4, '??')", "hi??"),
        Case("RTRIM", "RTRIM('a ')", "a"), Case("SHA1", "LEFT(SHA1('a'), 6)", "86f7e4"), Case("SHA2", "LEFT(SHA2('a', 256), 6)", "ca9781"),
        Case("SHA224, SHA256, SHA384, SHA512", "LEFT(SHA256('a'), 6)", "ca9781"), Case("SPLIT", "SPLIT('a,b', ',')", "['a', 'b']"),
        Case("SPLIT_INDEX", "SPLIT_INDEX('a,b,c', ',', 1)", "b"), Case("STARTSWITH", "STARTSWITH('abc', 'ab')", "TRUE"),
        Case("STR_TO_MAP", "STR_TO_MAP('k1=v1,k2=v2')['k2']", "v2"), Case("SUBSTRING, SUBSTR", "SUBSTRING('abcd' FROM 2 FOR 2)", "bc"),
        Case("TO_BASE64", "TO_BASE64('hello world')", "aGVsbG8gd29ybGQ="), Case("TRANSLATE", "TRANSLATE('abc', 'ab', 'xy')", "xyc"),
        Case("TRIM", "TRIM(BOTH 'x' FROM 'xxaxx')", "a"), Case("UPPER", "UPPER('ab')", "AB"),
        Case("URL_DECODE, URL_ENCODE", "URL_DECODE(URL_ENCODE('a b&c'))", "a b&c"),
    ),
    "Time": (
        Case("DATE, TIME, TIMESTAMP literals", "TIMESTAMP '2026-01-01 00:00:00' > DATE '2025-12-31'", "TRUE"),
        Case("INTERVAL", "TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '1 02:00:00' DAY TO SECOND", "2026-01-02 02:00:00"),
        Case("CURRENT_DATE, CURRENT_TIME, LOCALTIME", "CURRENT_DATE > DATE '2020-01-01' AND LOCALTIME IS NOT NULL", "TRUE"),
        Case("CURRENT_TIMESTAMP, LOCALTIMESTAMP, NOW()", "CURRENT_TIMESTAMP IS NOT NULL AND LOCALTIMESTAMP IS NOT NULL AND NOW() IS NOT NULL", "TRUE"),
        Case("CURRENT_ROW_TIMESTAMP()", "CURRENT_ROW_TIMESTAMP() IS NOT NULL", "TRUE"),
        Case("EXTRACT", "EXTRACT(DAY FROM DATE '2006-06-05')", "5"), Case("YEAR", "YEAR(DATE '1994-09-27')", "1994"),
        Case("QUARTER", "QUARTER(DATE '1994-09-27')", "3"), Case("MONTH", "MONTH(DATE '1994-09-27')", "9"),
        Case("WEEK", "WEEK(DATE '1994-09-27')", "39"), Case("DAYOFYEAR", "DAYOFYEAR(DATE '1994-09-27')", "270"),
        Case("DAYOFMONTH", "DAYOFMONTH(DATE '1994-09-27')", "27"), Case("DAYOFWEEK", "DAYOFWEEK(DATE '1994-09-27')", "3"),
        Case("HOUR, MINUTE, SECOND", "MINUTE(TIMESTAMP '1994-09-27 13:14:15')", "14"),
        Case("FLOOR … TO", "FLOOR(TIMESTAMP '2026-01-01 12:44:31' TO MINUTE)", "2026-01-01 12:44:00"),
        Case("CEIL … TO", "CEIL(TIMESTAMP '2026-01-01 12:44:31' TO MINUTE)", "2026-01-01 12:45:00"),
        Case("OVERLAPS", "(TIME '2:55:00', INTERVAL '1' HOUR) OVERLAPS (TIME '3:30:00', INTERVAL '2' HOUR)", "TRUE"),
        Case("DATE_FORMAT", "DATE_FORMAT(TIMESTAMP '2026-01-02 03:04:05', 'yyyyMMdd')", "20260102"),
        Case("TIMESTAMPADD", "TIMESTAMPADD(DAY, 1, TIMESTAMP '2026-01-01 00:00:00')", "2026-01-02 00:00:00"),
        Case("TIMESTAMPDIFF", "TIMESTAMPDIFF(DAY, TIMESTAMP '2026-01-01 00:00:00', TIMESTAMP '2026-01-03 00:00:00')", "2"),
        Case("CONVERT_TZ", "CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "1969-12-31 16:00:00"),
        Case("FROM_UNIXTIME", "FROM_UNIXTIME(44)", "1970-01-01 00:00:44"), Case("UNIX_TIMESTAMP", "UNIX_TIMESTAMP('1970-01-01 00:00:44')", "44"),
        Case("TO_DATE", "TO_DATE('2026-01-01')", "2026-01-01"), Case("TO_TIMESTAMP", "TO_TIMESTAMP('2026-01-01 00:00:01')", "2026-01-01 00:00:01"),
        Case("TO_TIMESTAMP_LTZ", "CAST(TO_TIMESTAMP_LTZ(1000, 3) AS STRING)", "1970-01-01 00:00:01.000"),
    ),
    "Conditions and types": (
        Case("CASE", "CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END", "b"), Case("NULLIF", "NULLIF(5, 5)", None),
        Case("COALESCE", "COALESCE(CAST(NULL AS STRING), 'd')", "d"), Case("IF", "IF(5 > 3, 5, 3)", "5"), Case("IFNULL", "IFNULL(CAST(NULL AS INT), 5)", "5"),
        Case("GREATEST", "GREATEST(1, 3, 2)", "3"), Case("LEAST", "LEAST(1, 3, CAST(NULL AS INT))", None),
        Case("CAST", "CAST('42' AS INT)", "42"),
        Case("CAST beyond the type", "CAST(3000000000 AS INT)", "-1294967296", "a value that does not fit goes to the dead letters; Flink wraps around"),
        Case("TRY_CAST", "TRY_CAST('non-number' AS INT)", None), Case("TYPEOF", "TYPEOF(CAST(1 AS BIGINT))", "BIGINT NOT NULL", "types are written in small letters, without NOT NULL"),
    ),
    "Collections": (
        Case("ARRAY[…], array[n]", "ARRAY[1, 2][2]", "2"), Case("MAP[…], map[key]", "MAP['a', 1]['a']", "1"),
        Case("ROW(…), (a, b)", "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>).b", "x"), Case("CARDINALITY", "CARDINALITY(ARRAY[1, 2])", "2"),
        Case("ELEMENT", "ELEMENT(ARRAY[7])", "7"), Case("ARRAY_APPEND", "ARRAY_APPEND(ARRAY[1], 2)", "[1, 2]"),
        Case("ARRAY_CONCAT", "ARRAY_CONCAT(ARRAY[1], ARRAY[2])", "[1, 2]"), Case("ARRAY_CONTAINS", "ARRAY_CONTAINS(ARRAY[1, 2], 2)", "TRUE"),
        Case("ARRAY_DISTINCT", "ARRAY_DISTINCT(ARRAY[1, 1, 2])", "[1, 2]"), Case("ARRAY_EXCEPT", "ARRAY_EXCEPT(ARRAY[1, 2], ARRAY[2])", "[1]"),
        Case("ARRAY_INTERSECT", "ARRAY_INTERSECT(ARRAY[1, 2], ARRAY[2, 3])", "[2]"), Case("ARRAY_JOIN", "ARRAY_JOIN(ARRAY['a', 'b'], ',')", "a,b"),
        Case("ARRAY_MAX", "ARRAY_MAX(ARRAY[1, 3, 2])", "3"), Case("ARRAY_MIN", "ARRAY_MIN(ARRAY[2, 1])", "1"),
        Case("ARRAY_POSITION", "ARRAY_POSITION(ARRAY['a', 'b'], 'b')", "2"), Case("ARRAY_PREPEND", "ARRAY_PREPEND(ARRAY[2], 1)", "[1, 2]"),
        Case("ARRAY_REMOVE", "ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", "[2]"), Case("ARRAY_REVERSE", "ARRAY_REVERSE(ARRAY[1, 2])", "[2, 1]"),
        Case("ARRAY_SLICE", "ARRAY_SLICE(ARRAY[1, 2, 3], 2, 3)", "[2, 3]"), Case("ARRAY_SORT", "ARRAY_SORT(ARRAY[2, 1])", "[1, 2]"),
        Case("ARRAY_UNION", "ARRAY_UNION(ARRAY[1], ARRAY[1, 2])", "[1, 2]"), Case("MAP_KEYS", "MAP_KEYS(MAP['a', 1])", "['a']"),
        Case("MAP_VALUES", "MAP_VALUES(MAP['a', 1])", "[1]"), Case("MAP_ENTRIES", "CARDINALITY(MAP_ENTRIES(MAP['a', 1]))", "1"),
        Case("MAP_FROM_ARRAYS", "MAP_FROM_ARRAYS(ARRAY['a'], ARRAY[1])['a']", "1"), Case("MAP_UNION", "CARDINALITY(MAP_UNION(MAP['a', 1], MAP['b', 2]))", "2"),
    ),
    "JSON": (
        Case("IS [NOT] JSON", "'{}' IS JSON OBJECT", "TRUE"), Case("JSON_EXISTS", """JSON_EXISTS('{"a": true}', '$.a')""", "TRUE"),
        Case("JSON_VALUE", """JSON_VALUE('{"a": true}', '$.a' RETURNING BOOLEAN)""", "TRUE"),
        Case("JSON_VALUE … DEFAULT", """JSON_VALUE('{"a": 1}', 'lax $.b' DEFAULT 'd' ON EMPTY)""", "d"),
        Case("JSON_QUERY", """JSON_QUERY('{"a":[1,2]}', '$.a')""", "[1,2]"),
        Case("JSON_QUERY WITH CONDITIONAL WRAPPER", "JSON_QUERY('1', '$' WITH CONDITIONAL ARRAY WRAPPER)", "[1]"),
        Case("JSON_STRING", "JSON_STRING(ARRAY[1, 2])", "[1,2]"), Case("JSON_OBJECT", "JSON_OBJECT('K1' VALUE 'V1')", '{"K1":"V1"}'),
        Case("JSON_ARRAY", "JSON_ARRAY(1, '2')", '[1,"2"]'), Case("JSON_QUOTE", "JSON_QUOTE('a')", '"a"'), Case("PARSE_JSON (VARIANT)", "PARSE_JSON('1')", "1"),
    ),
    "Others": (
        Case("CURRENT_DATABASE", "CURRENT_DATABASE()", "default_database"),
    ),
}  # fmt: skip
