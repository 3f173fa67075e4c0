"""The example of docs/schema-registry.md decodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
from headrace.flow.messages import Bodies
from headrace_schemaregistry.testing import small_registry

PAGE = Path(__file__).parents[3] / "docs" / "schema-registry.md"


def test_the_example() -> None:
    names: dict[str, Any] = {}
    [text] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    exec(text, names)
    with small_registry() as registry:
        registry.add("s", "ascii")
        registry.add("s", "latin-9")
        settings = names["NamedSettings"].of({"registry_url": registry.url})
        decoder = names["NamedDecoder"](settings, {"text": pl.String()})
        decoded = decoder.decode(Bodies.of([b"\x00\x00\x00\x00\x01hello", b"\x00\x00\x00\x00\x02x"]))
    assert decoded.frame.rows() == [("hello",)]
    assert decoded.bad[0].reason == "schema 2 of the registry names an unknown encoding, 'latin-9'"
