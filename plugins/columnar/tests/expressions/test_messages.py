"""What a user reads when an expression is wrong: each kind of mistake, with its place in the text, in a golden file.

``HEADRACE_UPDATE_GOLDEN=1 pytest …`` writes the file anew; look at the difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.expressions import compile_expression

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"
SCHEMA = Schema.of(
    {
        "host": "string", "user": "string", "cmdline": "string", "bytes": "int64", "score": "float64", "ts": "timestamp",
        "day": "date", "ok": "boolean", "tags": "array<string>", "geo": "struct<city: string, zip: int64>",
    }
)  # fmt: skip


def cases() -> list[tuple[str, str]]:
    """(expression, message) of the golden file: paragraphs that begin with ``>>> ``, separated by an empty line."""
    found = []
    for paragraph in GOLDEN.read_text(encoding="utf-8").split("\n\n>>> "):
        text, _, message = paragraph.removeprefix(">>> ").partition("\n")
        found.append((text.replace("\\n", "\n"), message.rstrip("\n")))
    return found


def message_of(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, SCHEMA)
    assert caught.value.text == text
    assert caught.value.position is not None
    return str(caught.value)


@pytest.mark.parametrize(("text", "message"), cases())
def test_message(text: str, message: str) -> None:
    assert message_of(text) == message


@pytest.mark.skipif("HEADRACE_UPDATE_GOLDEN" not in os.environ, reason="writes the golden file")
def test_write_the_golden_file() -> None:
    written = [f">>> {text.replace(chr(10), chr(92) + 'n')}\n{message_of(text)}\n" for text, _ in cases()]
    GOLDEN.write_text("\n".join(written), encoding="utf-8")
