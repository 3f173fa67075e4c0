"""Kinds of cases: each makes a case from choices and says whether something is wrong with it.

To add one, write a module with ``FAMILY = Family(…)`` and name it in ``MODULES``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.differential.choices import Choices

#: The modules of the families, each with a ``FAMILY`` or several ``FAMILIES``.
MODULES = (
    "tests.differential.sql_family",
    "tests.differential.dsl_family",
    "tests.differential.streams.family",
    "tests.differential.expression_family",
    "tests.differential.script_family",
    "tests.differential.function_family",
)
#: The families whose seeds need servers: no seed picks them, they are named.
SERVER_MODULE = "tests.differential.servers.family"
#: Others that no seed picks: a case of them is several runs.
NAMED_MODULES = ("tests.differential.streams.edited_family",)


@dataclass(frozen=True)
class Family:
    """A kind of case.

    ``generate`` makes a case from choices and nothing else. ``check`` runs it and returns what is wrong as a text that a
    person can read without the case (None when nothing is), ``describe`` gives the case as a text. ``weight`` is its share of the seeds.
    ``check_on_spark`` is ``check`` with headrace on Spark, for those that can.
    ``golden`` gives a case as ``golden.case_text`` does, so that it can be kept.
    """

    name: str
    generate: Callable[[Choices], Any]
    check: Callable[[Any], str | None]
    describe: Callable[[Any], str]
    weight: int = 10
    golden: Callable[[Any], str] | None = None
    check_on_spark: Callable[[Any], str | None] | None = None


@cache
def families() -> dict[str, Family]:
    """Return all families by name."""
    return _families_of(*MODULES)


@cache
def server_families() -> dict[str, Family]:
    """Return the families whose seeds need servers, by name. Their modules load the clients of all servers."""
    return _families_of(SERVER_MODULE)


@cache
def named_families() -> dict[str, Family]:
    """Return the families that are only run where they are named, by name."""
    return _families_of(*NAMED_MODULES)


def _families_of(*names: str) -> dict[str, Family]:
    found: dict[str, Family] = {}
    for name in names:
        module = importlib.import_module(name)
        for family in getattr(module, "FAMILIES", None) or [module.FAMILY]:
            found[family.name] = family
    return found


def family_named(name: str) -> Family:
    """Return the family of that name."""
    return families().get(name) or named_families().get(name) or server_families()[name]


def case_of(choices: Choices, only: str = "", *, backend: str = "light") -> tuple[Family, Any]:
    """Return the family that the choices pick, of those that the backend has, and its case. ``only`` names a family."""
    known = [each for each in families().values() if backend == "light" or each.check_on_spark is not None]
    family = family_named(only) if only else choices.weighted([(each.weight, each) for each in known])
    return family, family.generate(choices)


def problem_of(choices: Choices, only: str = "", *, backend: str = "light") -> str | None:
    """Make the case of the choices and check it: return its text and what is wrong, or None. An exception of a run is wrong, too."""
    family, case = case_of(choices, only, backend=backend)
    try:
        check = family.check if backend == "light" else family.check_on_spark
        assert check is not None, f"family {family.name} has no check on {backend}"
        wrong = check(case)
    except Exception as error:  # whatever a run raises is a finding
        wrong = told(error)
    return None if wrong is None else f"family {family.name}\n{family.describe(case)}\n\n{wrong}"


def told(error: BaseException) -> str:
    """Return an exception with those behind it, and where the last one comes from."""
    lines = [f"raised {type(error).__name__}: {error}"]
    while error.__cause__ is not None:
        error = error.__cause__
        lines.append(f"  because of {type(error).__name__}: {str(error)[:600]}")
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(
            f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {trace.tb_frame.f_code.co_name}"
        )
        trace = trace.tb_next
    return "\n".join([*lines, "  at " + " < ".join(reversed(frames[-5:]))])
