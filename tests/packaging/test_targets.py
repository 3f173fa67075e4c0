"""Every test belongs to a target of the Makefile."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.simulation.__main__ import KINDS
from tests.simulation.mutations import BY_KIND, MUTATIONS

ROOT = Path(__file__).parents[2]
#: Marks a test as slow: a mark, or one of a parameter.
SLOW = re.compile(r"\bmark\.slow\b")


def paths_of(target: str, marks: str) -> list[Path]:
    """Return the paths that a target gives to pytest for tests with these marks, as make would run it."""
    # As a person calls it: `make test`, which these tests may be part of, hands down variables of its own.
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "UNIT_TESTS"))}
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True, env=plain
    )
    [line] = [line for line in done.stdout.splitlines() if re.search(rf'pytest -m "?{re.escape(marks)}"? ', line)]
    return [ROOT / word for word in line.split() if (ROOT / word).is_dir()]


def outside(files: list[Path], paths: list[Path]) -> list[str]:
    """Return the files that are under none of the paths."""
    return [str(file.relative_to(ROOT)) for file in files if not any(file.is_relative_to(path) for path in paths)]


def files_of_tests() -> list[Path]:
    folders = ("core", "plugins", "connectors", "contrib", "tests", "benchmarks", "demo", "examples", "website")
    found = [file for folder in folders for file in (ROOT / folder).rglob("test_*.py")]
    return [file for file in found if "site-packages" not in file.parts]


@pytest.mark.parametrize(
    ("target", "marks"),
    [
        ("plain-unit", "not slow and not servers and not spark"),
        ("spark-unit", "not slow and not servers and spark"),
        ("test-servers", "not slow and servers"),
        ("chaos", "slow"),
    ],
)
def test_a_target_runs_every_test_of_its_marks(target: str, marks: str) -> None:
    found = files_of_tests()
    assert len(found) > 300
    assert outside(found, paths_of(target, marks)) == []


def test_what_marks_tests_as_slow_is_where_the_slow_tests_are_run() -> None:
    """Also files that are no tests themselves: they mark parameters of tests."""
    files = [
        file for path in ("core", "plugins", "connectors", "contrib", "tests") for file in (ROOT / path).rglob("*.py")
    ]
    slow = [file for file in files if SLOW.search(file.read_text(encoding="utf-8"))]
    assert len(slow) > 20
    assert outside(slow, paths_of("chaos", "slow")) == []
    beside = [file for file in slow if not file.is_relative_to(ROOT / "tests")]
    assert len(beside) > 5


#: Targets that try nothing of headrace, or that a person runs: to prepare, to measure, to build, to look.
BY_HAND = {
    "setup", "demo", "docs", "bench", "bench-peers", "bench-spark", "bench-sql", "wheels", "clean", "nightly", "test",
    # Other interpreters must be there; a hundred thousand damages; PyFlink beside, which is large.
    "test-python", "damage", "fuzz-flink",
    # `make test` runs its two halves.
    "unit",
}  # fmt: skip


def test_every_suite_is_part_of_what_ci_or_the_nightly_run_calls() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = " ".join(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE))
    [nightly] = re.findall(r"^NIGHTLY := (.*)$", text, re.MULTILINE)
    test = " ".join(re.findall(r"^\t\$\(MAKE\) -j [234] (.*)$", text, re.MULTILINE))
    called = set(re.findall(r"[a-z][a-z-]+", f"{nightly} {test}")) | {"lint", "spark-classes"}  # prerequisites of those
    assert set(targets.split()) - called == BY_HAND


def test_the_nightly_run_has_every_kind_of_simulated_histories_and_every_fuzzer_and_all_of_the_bugs() -> None:
    """A kind or a target that somebody adds is part of it without a further line, or this fails."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^simulate:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert recipe is not None
    assert set(re.findall(r"--failures 10(?: --([a-z]+))?$", recipe[1], re.MULTILINE)) == {"", *KINDS}
    assert re.search(r"^TARGETS \?=$", text, re.MULTILINE), "without names, all targets are fuzzed"
    assert {name for group in BY_KIND.values() for name in group} == set(MUTATIONS)
    assert set(BY_KIND) <= {"one", *KINDS}


_EXAMPLES = re.compile(r"max_examples=[0-9]")
_SETTINGS_OF_SLOW = re.compile(r"^@pytest\.mark\.slow\n(?:@.*\n)*?@settings\(max_examples=[0-9]", re.MULTILINE)


def test_generated_tests_try_fewer_examples_where_the_run_asks_for_less() -> None:
    """Every count of examples is ``examples(…)``, but for tests that are slow anyway."""
    wrong = {}
    for file in files_of_tests():
        text = file.read_text(encoding="utf-8")
        counts = len(_EXAMPLES.findall(text)) - len(_SETTINGS_OF_SLOW.findall(text))
        if counts:
            wrong[str(file.relative_to(ROOT))] = counts
    assert wrong == {}
