"""Functions that an installed plug-in offers are found by their name alone, in a process that has imported nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

MODULE = """
import headrace as hr

@hr.udf(returns="string")
def geohash_of_test(lat: float, lon: float) -> str:
    return f"{lat:.0f}/{lon:.0f}"

@hr.udf(returns="string")
def lower_of_test(text: str) -> str:
    return "not the function of the table"

@hr.udaf(returns="int64", name="sum_of_squares_of_test")
class SumOfSquares:
    def create(self): return 0
    def add(self, state, value): return state + value * value
    def merge(self, state, other): return state + other
    def result(self, state): return state
"""
PLUGIN = """
import headrace as hr

@hr.hookimpl
def headrace_functions():
    return {
        "geohash_of_test": "geo_of_test.functions:geohash_of_test",
        "lower": "geo_of_test.functions:lower_of_test",
        "sum_of_squares_of_test": "geo_of_test.functions:SumOfSquares",
    }
"""
JOB = """
import sys
import headrace as hr
from headrace.testing import MemorySink, MemorySource
from headrace_columnar import registry

stream = hr.stream("test", "plugins").from_(
    MemorySource({"q": [b'{"lat": 1.2, "lon": 3, "s": "A"}']}), format="json",
    schema={"lat": "float64", "lon": "float64", "s": "string"})
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed a plug-in."""
    place = tmp_path_factory.mktemp("plugin")
    wheel = place / "geo_of_test-1.0-py3-none-any.whl"
    contents = {
        "geo_of_test/__init__.py": "",
        "geo_of_test/functions.py": MODULE,
        "geo_of_test/plugin.py": PLUGIN,
        "geo_of_test-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: geo-of-test\nVersion: 1.0\n",
        "geo_of_test-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "geo_of_test-1.0.dist-info/entry_points.txt": "[headrace]\ngeo = geo_of_test.plugin\n",
    }
    contents["geo_of_test-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in contents)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    target = place / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, timeout=280)
    return target


def ran(installed: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", JOB + textwrap.dedent(code)]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_in_expressions(installed: Path) -> None:
    code = """
        assert "geo_of_test.functions" not in sys.modules
        sink = MemorySink()
        stream.where("geohash_of_test(lat, lon) <> ''").select(g="GEOHASH_OF_TEST(lat, lon)", l="lower(s)").to(sink).run("light")
        print(sink.rows)
    """
    assert ran(installed, code) == "[{'g': '1/3', 'l': 'a'}]"


def test_within_and_as_aggregates(installed: Path) -> None:
    code = """
        sink = MemorySink()
        counted = stream.key_by("s").agg(n="count(geohash_of_test(lat, lon))", q="sum_of_squares_of_test(CAST(lon AS BIGINT))")
        counted.to(sink).run("light")
        print([(row["n"], row["q"]) for row in sink.rows])
    """
    assert ran(installed, code) == "[(1, 9)]"


def test_no_plug_in_is_loaded_for_a_function_of_the_table(installed: Path) -> None:
    code = """
        stream.select(l="lower(s)")
        print("geo_of_test.functions" in sys.modules)
    """
    assert ran(installed, code) == "False"


def test_an_unknown_function_is_still_an_error(installed: Path) -> None:
    code = """
        try:
            stream.select(g="geohash_of_tests(lat, lon)")
        except hr.ExpressionError as error:
            print(error.message)
    """
    assert ran(installed, code) == "unknown function 'geohash_of_tests'"
