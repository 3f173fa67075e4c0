-- Blink dialect: CREATE FUNCTION, type='file' source, LATERAL TABLE, print sink, LEFT JOIN LATERAL
CREATE FUNCTION parseUdtf AS 'nx.udf.ParseUdtf';
CREATE FUNCTION strLen AS 'nx.udf.StrLen';

CREATE TABLE logs (
    `id`    BIGINT,
    `line`  VARCHAR,
    `level` VARCHAR
) WITH (
    type = 'file',
    filePath = 'logs.ndjson',
    isJsonData = 'true',
    msgIsJsonArray = 'false'
);

CREATE TABLE b01 (
    id   BIGINT,
    a    VARCHAR,
    b    BIGINT,
    c    INT,
    len2 BIGINT
) WITH (type = 'print');

CREATE VIEW parsed AS
SELECT S.id, S.`level`, S.line, T.a, T.b, T.c
FROM logs AS S LEFT JOIN LATERAL TABLE(parseUdtf(line)) AS T(a, b, c) ON TRUE;

INSERT INTO b01
SELECT id, a, b, c, strLen(a, `level`) FROM parsed WHERE `level` <> 'INFO' OR a IN ('a', 'f');
