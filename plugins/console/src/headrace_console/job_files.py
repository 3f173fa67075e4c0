"""Finds the job that a Python file builds."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import traceback
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
from headrace.foundation.errors import HeadraceError, JobError, did_you_mean
from headrace.interfaces.registry import default_registry
from headrace.jobs.job import Job, refusing_starts

from headrace_console.user_code import UserCodeError

logger = logging.getLogger(__name__)
#: Name of the module that a job file becomes. It is not ``__main__``, so that a guarded ``job.run()`` does not run.
MODULE = "headrace_job"
#: The variable or function that is used if a file has several jobs and the target names none.
DEFAULT_NAME = "job"


def load_job(target: str, parameters: Mapping[str, str] | None = None) -> Job:
    """Run a job file and return its job. ``target`` is a path; ``:name`` at its end chooses one of several jobs.

    A file in an installed language (``.sql``) is a job by itself; ``parameters`` are the values of its ``${NAME}``.

    A job is a variable that holds a ``headrace.Job``, or a function that returns one; ``parameters`` are the
    function's arguments, converted to the types of its annotations. The file's directory becomes importable, here and
    in worker processes that are started later. Raises JobError if the file is wrong or has no such job.
    """
    path, name = _split(target)
    _make_importable(path.parent)
    language = path.suffix.lstrip(".")
    if language != "py" and _is_language(language):
        return cast(Job, default_registry().find("language", language)().job(path, variables=parameters or {}))
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    with _building(module, path):
        # dont_inherit: the file must not be compiled with the __future__ imports of this module.
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
        found = _choose(path, _candidates(module), name)
        if isinstance(found, Job):
            if parameters:
                _refuse(
                    f"{path.name}: the job is a variable and takes no arguments", "make it a function: def job(...)"
                )
            return found
        return _call(path, found, parameters or {})


def lint_job(target: str, parameters: Mapping[str, str]) -> list[str]:
    """Compile a file in an installed language without running it, and return notices about it. Raises JobError."""
    path, _ = _split(target)
    language = path.suffix.lstrip(".")
    if language == "py" or not _is_language(language):
        _refuse(f"{path.name} is not in a language that can be checked", "for a Python file: headrace explain")
    _make_importable(path.parent)
    notices: list[str] = default_registry().find("language", language)().lint(str(path), parameters)
    return notices


def _is_language(suffix: str) -> bool:
    """Return whether files of a suffix are jobs of a language, of one that headrace has and that is not installed too."""
    registry = default_registry()
    return registry.has("language", suffix) or registry.to_install("language", suffix) is not None


def parse_assignments(texts: Sequence[str], *, flag: str) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a dict. Raises JobError for anything else, and for a key that comes twice."""
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        key = key.strip()
        if not sign or not key:
            _refuse(f"{flag} {text}: expected KEY=VALUE", f"for example {flag} limit=10")
        if key in values:
            _refuse(f"{flag} {key} is given twice", None)
        values[key] = value
    return values


def _refuse(message: str, hint: str | None) -> NoReturn:
    raise JobError(message, hint=hint)


def _split(target: str) -> tuple[Path, str | None]:
    whole = Path(target)
    if whole.is_file():
        return whole.resolve(), None
    before, sign, name = target.rpartition(":")
    path = Path(before) if sign else whole
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        _refuse(f"{path} {what}", "name the Python file that builds the job")
    if not name.isidentifier() and sign:
        _refuse(f"{name!r} is not the name of a variable or function", "write FILE:NAME")
    return path.resolve(), name if sign else None


def _make_importable(directory: Path) -> None:
    """Let the job file import modules of its directory, as ``python FILE`` does, also in processes that this one starts.

    Not in these if a file there has the name of a module of Python, such as ``copy.py``: they would import it instead, and none of
    Spark's Python processes could start. Spark's get the path behind Python's own with what they run.
    """
    place = str(directory)
    if sys.path[:1] != [place]:
        sys.path.insert(0, place)
    hidden = sorted(each.name for each in directory.glob("*.py") if each.stem in sys.stdlib_module_names)
    if hidden:
        logger.warning(
            "%s: %s has the name of a Python module; processes that the job starts cannot import modules from this directory",
            place, hidden[0],
        )  # fmt: skip
        return
    inherited = os.environ.get("PYTHONPATH", "")
    if place not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = place + (os.pathsep + inherited if inherited else "")


@contextmanager
def _building(module: types.ModuleType, path: Path) -> Iterator[None]:
    """Run user code that builds a job: its errors are shown with their place, and it must not run the job itself.

    The module is in ``sys.modules`` only during that time. After that, cloudpickle pickles its functions and classes by
    value. This is necessary because worker processes cannot import the module.
    """

    def refuse_to_start(job: Job) -> NoReturn:
        _refuse(
            f"{path.name} starts job {job.name} when it is loaded",
            "put the call under: if __name__ == '__main__':",
        )

    before = sys.modules.get(MODULE)
    sys.modules[MODULE] = module
    try:
        with refusing_starts(refuse_to_start):
            yield
    except HeadraceError as error:
        place = _place(error, path)
        if place:
            error.add_note(f"at {place}")
        raise
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        _raise_user_error(error, path)
    finally:
        if before is None:
            del sys.modules[MODULE]
        else:
            sys.modules[MODULE] = before


def _raise_user_error(error: BaseException, path: Path) -> NoReturn:
    what = type(error).__name__ + (f": {error}" if str(error) else "")
    if isinstance(error, SyntaxError) and error.filename == str(path):
        what = f"{type(error).__name__}: {error.msg}"
        shown = UserCodeError(f"{path.name}, line {error.lineno}: {what}\n    {(error.text or '').strip()}")
    else:
        place = _place(error, path) or path.name
        shown = UserCodeError(f"{place}: {what}")
    raise shown from error


def _place(error: BaseException, path: Path) -> str | None:
    """Return the last line in the traceback that is in the job file or in a module of its directory."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent == path.parent]
    if not own:
        return None
    shown = f"{Path(own[-1].filename).name}, line {own[-1].lineno}"
    return f"{shown}: {own[-1].line}" if own[-1].line else shown


def _candidates(module: types.ModuleType) -> dict[str, Any]:
    """Return the jobs of a file: variables that hold one, functions that say they return one, and ``job()``."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Job)
        or (inspect.isfunction(value) and value.__module__ == MODULE and (name == DEFAULT_NAME or _returns_job(value)))
    }


def _returns_job(function: types.FunctionType) -> bool:
    annotation = function.__annotations__.get("return")
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Job"
    return annotation is Job


def _choose(path: Path, candidates: Mapping[str, Any], name: str | None) -> Any:
    if name is not None:
        if name not in candidates:
            hint = did_you_mean(name, candidates, known="jobs") if candidates else _HOW_TO_BUILD
            _refuse(f"{path.name} has no job {name!r}", hint)
        return candidates[name]
    public = {key: value for key, value in candidates.items() if not key.startswith("_")} or candidates
    distinct = {id(value): key for key, value in public.items()}
    if not distinct:
        _refuse(f"{path.name} builds no job", _HOW_TO_BUILD)
    if len(distinct) == 1 or DEFAULT_NAME in public:
        return public.get(DEFAULT_NAME, public[next(iter(distinct.values()))])
    choices = ", ".join(f"{path.name}:{key}" for key in distinct.values())
    _refuse(f"{path.name} builds {len(distinct)} jobs", f"choose one: {choices}")


_HOW_TO_BUILD = "a job is what to_<name>(...) returns: job = hr.stream(...).from_file(...).to_file(...)"


def _call(path: Path, function: types.FunctionType, parameters: Mapping[str, str]) -> Job:
    signature = inspect.signature(function)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    named = {p.name: p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    hints = typing.get_type_hints(function)
    arguments = {}
    for key, text in parameters.items():
        if key not in named and not takes_any:
            hint = did_you_mean(key, named, known="arguments")
            _refuse(f"{path.name}: {function.__name__}() takes no argument {key!r}", hint)
        try:
            arguments[key] = msgspec.convert(text, hints.get(key, str), strict=False)
        except (msgspec.ValidationError, TypeError) as error:
            raise JobError(f"--set {key}={text}: {error}") from error
    missing = [key for key, p in named.items() if p.default is p.empty and key not in arguments]
    if missing:
        shown = " ".join(f"--set {key}=…" for key in missing)
        _refuse(f"{path.name}: {function.__name__}() needs {', '.join(missing)}", f"pass {shown}")
    made = function(**arguments)
    if not isinstance(made, Job):
        _refuse(f"{path.name}: {function.__name__}() returns {type(made).__name__}, not a job", _HOW_TO_BUILD)
    return made
