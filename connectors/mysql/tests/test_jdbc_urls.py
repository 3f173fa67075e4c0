"""What the parameters of a JDBC URL mean as options of a table; none is left out in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_mysql.table_options import SINK_TABLES, SOURCE_TABLES

URL = "jdbc:mysql://db.example:3307/shop"
HERE = {"host": "db.example", "port": 3307, "database": "shop"}


def options_of(parameters: str) -> Mapping[str, Any]:
    given = SOURCE_TABLES["jdbc"].options["url"]
    assert callable(given)
    assert given is SINK_TABLES["rds"].options["url"]
    return given(URL + parameters)


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ("", {}),
        ("?useSSL=true", {"ssl": True}),
        ("?useSSL=false&allowPublicKeyRetrieval=true", {}),
        ("?sslMode=VERIFY_IDENTITY", {"ssl": True}),
        ("?sslMode=verify-full", {"ssl": True}),
        ("?sslMode=PREFERRED", {}),
        ("?user=reader&password=a%26b", {"user": "reader", "password": "a&b"}),
        ("?connectTimeout=3000&socketTimeout=60000", {"connect_timeout": "3000 ms", "read_timeout": "60000 ms"}),
        ("?connectTimeout=0", {}),
        ("?useUnicode=true&characterEncoding=UTF-8&autoReconnect=true&rewriteBatchedStatements=true", {}),
        ("?serverTimezone=UTC&zeroDateTimeBehavior=convertToNull&tinyInt1isBit=true", {}),
    ],
)
def test_parameters_become_options(parameters: str, options: Mapping[str, Any]) -> None:
    assert options_of(parameters) == {**HERE, **options}


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ("?serverTimezone=Asia/Shanghai", "serverTimezone=Asia/Shanghai is not supported: sessions use UTC"),
        ("?connectionTimeZone=LOCAL", "connectionTimeZone=LOCAL is not supported"),
        ("?characterEncoding=gbk", "characterEncoding=gbk is not supported: texts are sent as UTF-8"),
        ("?zeroDateTimeBehavior=round", "a zero date is read as NULL"),
        ("?tinyInt1isBit=false", "a TINYINT\\(1\\) is read as true or false"),
        ("?useSSL=perhaps", "useSSL does not take 'perhaps'"),
        ("?connectTimeout=soon", "connectTimeout does not take 'soon'"),
        ("?sessionVariables=time_zone='+08:00'", "the parameter 'sessionVariables' is not known"),
    ],
)
def test_what_would_change_rows_is_refused(parameters: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        options_of(parameters)


def test_a_table_in_sql_shows_the_place_and_no_secret() -> None:
    statement = """
        CREATE TABLE t (id BIGINT) WITH ('connector' = 'jdbc', 'table-name' = 't', 'url' = 'URL?password=hidden&serverTimezone=PRC');
        CREATE TABLE s (id BIGINT) WITH ('connector' = 'print');
        INSERT INTO s SELECT id FROM t"""
    with pytest.raises(ExpressionError, match="serverTimezone=PRC is not supported") as raised:
        hr.sql(statement.replace("URL", URL))
    assert "line 2" in str(raised.value)
    assert "hidden" not in str(raised.value)
