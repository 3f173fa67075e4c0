"""Events of pairs as programs write them, with texts that others choose: each comes back in its field, or the line is a bad record."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

import headrace as hr
from headrace_grok.pair_codecs import CefCodec, LeefCodec, LogfmtCodec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

#: What an attacker would choose, and any other text.
TEXTS = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(["src=10.9.9.9", " src=10.9.9.9", "\tsrc=10.9.9.9", "|", "\\", '"', "=", " ", "\n", "\r", "^", "x", "\x1b[31m",
                         "\\n", "\\x41", "\u200b", "\U000e0001", "msg=", "CEF:0|", "é"]),
        max_size=7,
    ).map("".join),
)  # fmt: skip
FIELDS = st.fixed_dictionaries({"src": st.just("10.0.0.1"), "msg": TEXTS, "user": TEXTS, "act": TEXTS})
COLUMNS = hr.Schema.of(dict.fromkeys(("src", "msg", "user", "act"), "string"))


def decoded(codec: hr.Codec, line: str) -> dict[str, Any] | None:
    """Return the row of a line; None for a bad record."""
    found = codec.decoder(COLUMNS).decode(hr.Bodies.of([line.encode()]))
    assert found.frame.height + len(found.bad) == 1
    return found.frame.to_dicts()[0] if found.frame.height else None


def quoted_by_go(text: str) -> str:
    """Return a text as ``strconv.Quote`` writes it, which logrus, slog and others use."""
    known = {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }

    def written(character: str) -> str:
        code = ord(character)
        if character in known:
            return known[character]
        if character == " " or unicodedata.category(character)[0] in "LMNPS":
            return character
        if code < 0x20 or code == 0x7F:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return '"' + "".join(map(written, text)) + '"'


@settings(max_examples=examples(300), deadline=None)
@given(fields=FIELDS, always=st.booleans())
def test_logfmt_of_go(fields: dict[str, str], always: bool) -> None:
    def value(text: str) -> str:
        plain = text and all(each.isalnum() or each in "-._/@^+" for each in text)
        return text if plain and not always else quoted_by_go(text)

    line = " ".join(f"{name}={value(text)}" for name, text in fields.items())
    assert decoded(LogfmtCodec(LogfmtCodec.Settings.of({})), line) == fields


@settings(max_examples=examples(300), deadline=None)
@given(fields=FIELDS, product=TEXTS)
def test_cef(fields: dict[str, str], product: str) -> None:
    """Blanks at the end of a value are not told from those between pairs; an empty text is none."""
    escaped = {"\\": "\\\\", "=": "\\=", "\n": "\\n", "\r": "\\r"}
    product = product.replace("\n", " ").replace("\r", " ")
    head = product.replace("\\", "\\\\").replace("|", "\\|")
    pairs = " ".join(f"{name}={''.join(escaped.get(each, each) for each in text)}" for name, text in fields.items())
    row = decoded(CefCodec(CefCodec.Settings.of({})), f"CEF:0|vendor|{head}|1.0|100|name|5|{pairs}")
    assert row == {name: text.rstrip(" ") or None for name, text in fields.items()}


@settings(max_examples=examples(300), deadline=None)
@given(fields=FIELDS, delimiter=st.sampled_from(["\t", "^", "|", "\x1f"]), version=st.sampled_from(["1.0", "2.0"]))
def test_leef(fields: dict[str, str], delimiter: str, version: str) -> None:
    """LEEF has no escapes: a value that has the delimiter is cut. Where the rest has no key the line is bad."""
    delimiter = "\t" if version == "1.0" else delimiter
    head = f"LEEF:{version}|vendor|product|1.0|100|" + ("" if version == "1.0" else f"x{ord(delimiter):02X}|")
    line = head + delimiter.join(f"{name}={text}" for name, text in fields.items())
    row = decoded(LeefCodec(LeefCodec.Settings.of({})), line)
    wanted = {name: text or None for name, text in fields.items()}
    if not any(delimiter in text for text in fields.values()):
        assert row == wanted
    elif row is not None:
        assert all(_is_of(row[name], text, fields) for name, text in wanted.items())


def _is_of(found: str | None, text: str | None, fields: Mapping[str, str]) -> bool:
    """Return whether a value is its text or the begin of it, or what another text says for its key."""
    return (text or "").startswith(found or "") or any(f"={found}" in each for each in fields.values())


@settings(max_examples=examples(300), deadline=None)
@given(fields=FIELDS)
def test_key_value_with_other_separators(fields: dict[str, str]) -> None:
    codec = LogfmtCodec(LogfmtCodec.Settings.of({"pair_separator": ";", "key_separator": ":"}))
    line = "; ".join(f"{name}:{quoted_by_go(text)}" for name, text in fields.items())
    assert decoded(codec, line) == fields
