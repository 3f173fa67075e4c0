"""Texts with words left out, put in, replaced and exchanged: each is a job, or an error of headrace that says where."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError, HeadraceError
from headrace_sql import api
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.sql import golden

_TOKEN = re.compile(r"'[^']*'|`[^`]*`|--[^\n]*|\w+|\s+|[^\w\s]")
#: Words that the cases have not, and signs that end or open what should not end or be open.
_MORE = [
    "EMIT",
    "OVER",
    "UNNEST",
    "LATERAL",
    "WITHIN",
    "USING",
    "MAP",
    "ALL",
    "(",
    ")",
    "'",
    "`",
    ";",
    ",",
    "*",
    "-1",
    "1e400",
    "🙂",
    "%",
]


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


@cache
def _case(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the text's tables, and the tokens of what is behind them."""
    text = golden.text_of(name, Path("/nowhere"))
    place = max(text.find("\n-- "), 0)
    return text[:place], tuple(_tokens(text[place:]))


@cache
def _words() -> list[str]:
    found = {token for name in golden.case_names() for token in _case(name)[1] if not token.isspace()}
    return sorted(found) + _MORE


Mutation = tuple[str, int, int]
_MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["drop", "put", "replace", "exchange"]), st.integers(0, 10_000), st.integers(0, 10_000)),
    min_size=1, max_size=3,
)  # fmt: skip


def mutated(name: str, mutations: list[Mutation]) -> str:
    """Return the text of a case with some of its tokens changed."""
    tables, tokens = _case(name)
    made, words = list(tokens), _words()
    for what, at, other in mutations:
        at %= len(made)
        if what == "drop" and len(made) > 1:
            del made[at]
        elif what == "exchange":
            other %= len(made)
            made[at], made[other] = made[other], made[at]
        else:
            word = words[other % len(words)]
            made[at : at + (what == "replace")] = [f" {word} "]
    return tables + "".join(made)


def problem_of(text: str) -> HeadraceError | None:
    """Compile a text; return the error that it has, if any. Raises what is no error of headrace."""
    api.forget()
    try:
        job = hr.sql(text, functions=golden.FUNCTIONS)
        if job.sink_nodes:
            job.plan()
    except HeadraceError as error:
        return error
    return None


def plans_or_tells(text: str) -> None:
    problem = problem_of(text)
    if problem is None:
        return
    assert problem.message.strip()
    if isinstance(problem, ExpressionError) and problem.position is not None:
        assert problem.text is not None
        assert 0 <= problem.position <= len(problem.text)
        assert "line " in str(problem)
        assert "^" in str(problem)


_RULES: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=examples(40), derandomize=True, **_RULES)
@given(st.sampled_from(golden.case_names()), _MUTATIONS)
def test_a_changed_text_is_a_job_or_an_error(name: str, mutations: list[Mutation]) -> None:
    plans_or_tells(mutated(name, mutations))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=3000, **_RULES)
@given(st.sampled_from(golden.case_names()), _MUTATIONS)
def test_many_changed_texts_are_jobs_or_errors(name: str, mutations: list[Mutation]) -> None:
    plans_or_tells(mutated(name, mutations))


@pytest.mark.parametrize("end", range(0, 400, 40))
def test_a_text_that_breaks_off_is_a_job_or_an_error(end: int) -> None:
    tables, tokens = _case("s01")
    plans_or_tells(tables + "".join(tokens[:end]))
