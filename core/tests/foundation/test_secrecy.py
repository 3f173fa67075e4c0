"""Texts that errors quote: the values of secret names are masked, all else stays where it is."""

from __future__ import annotations

import pytest
from headrace.foundation.errors import DataError, ExpressionError, OptionError
from headrace.foundation.secrecy import is_in_clear, is_secret_name, lets_in, masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("WITH ('password' = 'sesame', 'x' = 'y')", "WITH ('password' = '******', 'x' = 'y')"),
        ("password='se''same' , a='b'", "password='********' , a='b'"),
        ("'password' = 'sesame", "'password' = '******"),
        ("'password' = 'sesame\nnext line", "'password' = '******\nnext line"),
        ('{"api_key": "sesame"}', '{"api_key": "******"}'),
        ("'sasl.oauthbearer.config' = 'a=b c'", "'sasl.oauthbearer.config' = '*****'"),
        ("`spark.hadoop.fs.s3a.secret.key`='sesame'", "`spark.hadoop.fs.s3a.secret.key`='******'"),
        ("accessKey='sesame' secretKey => 'sesame'", "accessKey='******' secretKey => '******'"),
        ("'signature-key' = 'sesame'", "'signature-key' = '******'"),
        ("https://a/?api_key=sesame&x=1", "https://a/?api_key=******&x=1"),
        ("jdbc:mysql://h/d?user=u&password=sesame", "jdbc:mysql://h/d?user=u&password=******"),
        ("redis://u:sesame@host/1", "redis://u:******@host/1"),
        ("pass password='${VARIABLE}'", "pass password='${VARIABLE}'"),
        ("give them as user='...', password='...'", "give them as user='...', password='...'"),
        (
            "column 'token': expected int64, found string \"abc\"",
            "column 'token': expected int64, found string \"abc\"",
        ),
        ("a = 'b' AND c = 'd'", "a = 'b' AND c = 'd'"),
        ("https://a:9200/b", "https://a:9200/b"),
    ],
)
def test_masking(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


def test_errors_mask_what_they_quote() -> None:
    assert "sesame" not in str(DataError("cannot read WITH ('password' = 'sesame')"))
    assert "sesame" not in repr(OptionError("unknown 'secret'='sesame'"))
    text = "CREATE TABLE t (a INT) WITH ('password' = 'sesame', 'nonsense' = 'x')"
    error = ExpressionError("unknown option", text=text, position=text.index("'nonsense'"), length=10)
    assert "sesame" not in str(error)
    shown, mark = str(error).splitlines()[-2:]
    assert shown[mark.index("^") : mark.rindex("^") + 1] == "'nonsense'"


def test_names_of_secrets() -> None:
    names = [
        "password",
        "db.PASSWORD",
        "api_key",
        "sasl.jaas.config",
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "ssl.key.pem",
    ]
    assert all(map(is_secret_name, names))
    assert not any(map(is_secret_name, ["path", "topic", "key", "user", "columns", "bypass"]))


@pytest.mark.parametrize("name", ["password", "headers.Cookie", "signature_key", "sasl.jaas.config"])
def test_names_that_let_in(name: str) -> None:
    assert lets_in(name)


@pytest.mark.parametrize("name", ["token_url", "ssl.truststore.location", "secret.file", "user", "key"])
def test_names_of_places(name: str) -> None:
    assert not lets_in(name)


@pytest.mark.parametrize(
    ("value", "clear"), [("sesame", True), ("${A}", False), ("Bearer ${A}", False), ("", False), ("True", False)]
)
def test_values_in_clear(value: str, clear: bool) -> None:
    assert is_in_clear(value) is clear
