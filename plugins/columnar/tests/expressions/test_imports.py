"""sqlglot takes a while to import: it is loaded only when an expression text is compiled."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import polars as pl
from headrace.flow.schema import Schema
from headrace_columnar.expressions import compile_expression
schema = Schema({"a": pl.Int64()})
compile_expression(pl.col("a") + 1, schema)
assert "sqlglot" not in sys.modules, "loaded too early"
compile_expression("a + 1", schema)
assert "sqlglot" in sys.modules
"""


def test_sqlglot_is_loaded_only_for_a_text() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
