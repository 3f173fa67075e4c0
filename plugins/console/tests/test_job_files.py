"""Which job of a file is meant, and what is said when none can be."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import headrace as hr
import pytest
from headrace_console.job_files import MODULE, load_job, parse_assignments
from headrace_console.user_code import UserCodeError

WriteFile = Callable[..., Path]

TWO_JOBS = """
    import headrace as hr
    from headrace.testing import MemorySink, MemorySource

    def made(name):
        return hr.stream("test", name).from_(MemorySource(), format="json", schema={"a": "int64"}).to(MemorySink())

    one = made("one")
    two = made("two")
"""
WITH_FUNCTION = """
    from __future__ import annotations
    import headrace as hr
    from headrace.testing import MemorySink, MemorySource

    def job(name: str, least: int = 0, strict: bool = False) -> hr.Job:
        stream = hr.stream("test", name).from_(MemorySource(), format="json", schema={"a": "int64"})
        return stream.where(f"a >= {least!r}" if strict is True else f"a > {least!r}").to(MemorySink())
"""


@pytest.fixture(autouse=True)
def _own_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


def test_the_only_job_is_meant(simple_job: Path) -> None:
    assert load_job(str(simple_job)).name == "test.simple"


def test_a_job_is_chosen_by_name(write_file: WriteFile) -> None:
    path = write_file(TWO_JOBS)
    assert load_job(f"{path}:two").name == "test.two"


def test_several_jobs_are_listed(write_file: WriteFile) -> None:
    path = write_file(TWO_JOBS)
    with pytest.raises(hr.JobError, match=r"job.py builds 2 jobs\n  hint: choose one: job.py:one, job.py:two"):
        load_job(str(path))


def test_job_is_the_name_that_is_meant_among_several(write_file: WriteFile) -> None:
    path = write_file(TWO_JOBS + "    job = two\n    three = made('three')\n")
    assert load_job(str(path)).name == "test.two"


def test_one_job_under_two_names_is_one(write_file: WriteFile, simple_text: str) -> None:
    path = write_file(simple_text + "    alias = job\n    del job\n    again = alias\n")
    assert load_job(str(path)).name == "test.simple"


def test_an_unknown_name_has_a_hint(write_file: WriteFile) -> None:
    path = write_file(TWO_JOBS)
    with pytest.raises(hr.JobError, match=r"job.py has no job 'tow'\n  hint: did you mean 'two'\?"):
        load_job(f"{path}:tow")


def test_a_file_without_job(write_file: WriteFile) -> None:
    path = write_file("import headrace as hr\nstream = hr.stream('a', 'b')\n")
    with pytest.raises(hr.JobError, match=r"job.py builds no job\n  hint: a job is what to_<name>"):
        load_job(str(path))


@pytest.mark.parametrize("target", ["missing.py", "missing.py:job"])
def test_a_missing_file(target: str) -> None:
    with pytest.raises(hr.JobError, match=r"missing.py does not exist"):
        load_job(target)


def test_a_directory_is_no_job_file(tmp_path: Path) -> None:
    with pytest.raises(hr.JobError, match="is a directory"):
        load_job(str(tmp_path))


def test_a_function_is_called_with_its_arguments_converted(write_file: WriteFile) -> None:
    path = write_file(WITH_FUNCTION)
    job = load_job(str(path), {"name": "orders", "least": "17", "strict": "true"})
    assert job.name == "test.orders"
    assert "a >= 17" in job.plan().nodes["where"].spec.describe()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"job\(\) needs name\n  hint: pass --set name=…"),
        ({"name": "a", "leest": "1"}, r"job\(\) takes no argument 'leest'\n  hint: did you mean 'least'"),
        ({"name": "a", "least": "many"}, r"--set least=many: Expected `int`"),
    ],
)
def test_wrong_arguments_of_a_function(write_file: WriteFile, arguments: dict[str, str], message: str) -> None:
    path = write_file(WITH_FUNCTION)
    with pytest.raises(hr.JobError, match=message):
        load_job(str(path), arguments)


def test_a_variable_takes_no_arguments(simple_job: Path) -> None:
    with pytest.raises(hr.JobError, match=r"takes no arguments\n  hint: make it a function"):
        load_job(str(simple_job), {"least": "1"})


def test_a_function_that_returns_something_else(write_file: WriteFile) -> None:
    path = write_file("def job():\n    return 17\n")
    with pytest.raises(hr.JobError, match=r"job\(\) returns int, not a job"):
        load_job(str(path))


def test_functions_that_return_jobs_are_found_by_annotation(write_file: WriteFile) -> None:
    path = write_file(TWO_JOBS + "    def built() -> hr.Job:\n        return made('built')\n    del one, two\n")
    assert load_job(f"{path}:built").name == "test.built"
    assert load_job(str(path)).name == "test.built"


def test_an_error_in_the_file_says_where(write_file: WriteFile) -> None:
    path = write_file("x = 1\ny = x + undefined\n")
    with pytest.raises(UserCodeError, match=r"job.py, line 2: y = x \+ undefined: NameError: name 'undefined'"):
        load_job(str(path))


def test_an_error_in_a_neighbour_says_where(write_file: WriteFile) -> None:
    write_file("def broken():\n    return 1 / 0\n", "neighbour_that_divides.py")
    path = write_file("from neighbour_that_divides import broken\nbroken()\n")
    with pytest.raises(UserCodeError, match=r"neighbour_that_divides.py, line 2: return 1 / 0: ZeroDivisionError"):
        load_job(str(path))


def test_a_syntax_error_says_where(write_file: WriteFile) -> None:
    path = write_file("x = 1\ny = (\n")
    with pytest.raises(UserCodeError, match=r"job.py, line 2: SyntaxError: '\(' was never closed\n    y = \("):
        load_job(str(path))


def test_a_file_that_exits(write_file: WriteFile) -> None:
    path = write_file("import sys\nsys.exit(3)\n")
    with pytest.raises(UserCodeError, match=r"line 2: sys.exit\(3\): SystemExit: 3"):
        load_job(str(path))


def test_an_error_of_headrace_keeps_its_kind_and_says_where(write_file: WriteFile, simple_text: str) -> None:
    path = write_file(simple_text.replace("a >= 2", "aa >= 2"))
    with pytest.raises(hr.ExpressionError, match="aa") as failure:
        load_job(str(path))
    assert failure.value.__notes__ == ['at job.py, line 9: .where("aa >= 2")']


def test_a_file_that_runs_its_job_while_loaded_is_refused(write_file: WriteFile, simple_text: str) -> None:
    path = write_file(simple_text + "    report = job.run('light')\n")
    with pytest.raises(
        hr.JobError, match=r"job.py starts job test.simple when it is loaded\n  hint: put the call under"
    ):
        load_job(str(path))
    path = write_file(simple_text + "    if __name__ == '__main__':\n        job.run('light')\n")
    assert load_job(str(path)).run("light").records_read == 6


def test_annotations_are_those_of_the_file(write_file: WriteFile, simple_text: str) -> None:
    """The file decides by itself whether its annotations are texts."""
    check = (
        "    def f(x: int) -> str: ...\n    assert f.__annotations__ == {'x': int, 'return': str}, f.__annotations__\n"
    )
    assert load_job(str(write_file(simple_text + check))).name == "test.simple"


def test_what_the_file_defines_is_pickled_by_value(write_file: WriteFile, simple_text: str) -> None:
    """Worker processes cannot import the job file."""
    path = write_file(simple_text.replace('.where("a >= 2")', ".map(double)").replace(
        "job = (", "def double(row):\n        return {'a': row['a'] * FACTOR}\n    FACTOR = 2\n    job = ("
    ))  # fmt: skip
    job = load_job(str(path))
    assert MODULE not in sys.modules
    spec = job.plan().nodes["map"].spec  # type: ignore[attr-defined]
    copy = cloudpickle.loads(cloudpickle.dumps(spec))
    assert "double" in copy.describe()


def test_neighbours_are_importable_here_and_in_processes_started_later(
    write_file: WriteFile, simple_text: str, tmp_path: Path
) -> None:
    write_file("LEAST = 3\n", "neighbour_with_a_number.py")
    load_job(str(write_file("    from neighbour_with_a_number import LEAST\n" + simple_text)))
    assert sys.path[0] == str(tmp_path)
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


def test_assignments() -> None:
    assert parse_assignments(["a=1", "b=x=y", "c="], flag="--set") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a"], "--set a: expected KEY=VALUE"),
        (["=1"], "--set =1: expected KEY=VALUE"),
        (["a=1", "a=2"], "--set a is given twice"),
    ],
)
def test_wrong_assignments(texts: list[str], message: str) -> None:
    with pytest.raises(hr.JobError, match=message):
        parse_assignments(texts, flag="--set")
