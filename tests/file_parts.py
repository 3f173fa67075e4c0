"""A plug-in of pytest with which each process reads only the files of tests that it runs: reading all of them takes half a minute.

    python -m pytest -p tests.file_parts -m "not slow and not servers and not spark" -n 4 core/tests plugins/sql/tests …

With ``-n`` the files are divided among the processes before anything is read, so that each has about the same to do: by the seconds
that ``tests/seconds_of_files.txt`` has of the files that take long. One that is not there counts as short, so that list need not be
complete; ``--note-seconds`` writes it anew, when the run ends. A process that crashes is replaced by one that runs the rest of its tests.

Files in which no test can have the wanted marks are left out. That is seen by their text: by ``pytestmark = …``, and for a mark that is
wanted, by ``mark.NAME``. Where a test gets such a mark in another way, the run fails and says so, because nobody would run the test.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from xdist.workermanage import WorkerController

from tests.parts_scheduling import PartsScheduling

ROOT = Path(__file__).resolve().parents[1]
_SECONDS = ROOT / "tests" / "seconds_of_files.txt"
#: What a file takes that is not in the list, and the least that one takes which is.
_SHORT_SECONDS, _NOTED_SECONDS = 0.5, 3.0
#: Marks that a run with this plug-in wants.
_WANTED_SOMEWHERE = ("spark",)
#: Where the processes find their parts: a file for each, with the name of the process.
_PLACE = "HEADRACE_TEST_PARTS"
_OF_FILE = re.compile(r"^pytestmark = (.*(?:\n[ \]].*)*)", re.MULTILINE)


class Marks:
    """The marks that tests must have, and those that they must not have: ``slow and not servers``."""

    def __init__(self, expression: str) -> None:
        """Raise UsageError for an expression with more than names, ``not`` and ``and``."""
        parts = expression.split(" and ") if expression else []
        if not all(re.fullmatch(r"(not )?[a-z_]+", part) for part in parts):
            raise pytest.UsageError(
                f"tests.file_parts reads expressions of marks like 'slow and not servers', not {expression!r}"
            )
        self.wanted = {part for part in parts if not part.startswith("not ")}
        self.unwanted = {part.removeprefix("not ") for part in parts} - self.wanted

    def may_have(self, text: str) -> bool:
        """Return whether a file with this text may have a test with these marks."""
        named = _OF_FILE.search(text)
        # Parameters, and what depends on something, may be marked for a part of the tests only.
        plain = named is not None and not re.search(r"param|\bif\b", named[1])
        of_file = set(re.findall(r"mark\.(\w+)", named[1])) if named is not None and plain else set()
        return not of_file & self.unwanted and all(_says(text, mark) for mark in self.wanted)


def _says(text: str, mark: str) -> bool:
    return re.search(rf"\bmark\.{mark}\b", text) is not None


def files_of(paths: Iterable[str], marks: Marks) -> list[str]:
    """Return the files of tests below these paths that may have tests with the marks. Tests that are named one by one stay as they are."""
    found: dict[str, None] = {}
    for path in paths:
        place = Path(path)
        if place.is_dir():
            files = sorted(place.rglob("test_*.py"))
            found |= dict.fromkeys(str(each) for each in files if marks.may_have(each.read_text(encoding="utf-8")))
        else:
            found[path] = None
    return list(found)


def parts_of(files: Sequence[str], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Divide files into parts that take about the same time; each has its files in the given order."""
    order = {file: number for number, file in enumerate(files)}
    takes = {file: seconds.get(_name(file), _SHORT_SECONDS) for file in files}
    parts: list[list[str]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for file in sorted(files, key=lambda file: (-takes[file], order[file])):
        emptiest = sums.index(min(sums))
        parts[emptiest].append(file)
        sums[emptiest] += takes[file]
    return [sorted(part, key=order.__getitem__) for part in parts]


def known_seconds() -> dict[str, float]:
    """Return what long files take, by their path from the root."""
    lines = _SECONDS.read_text(encoding="utf-8").splitlines() if _SECONDS.exists() else []
    return {path: float(seconds) for seconds, path in (line.split() for line in lines)}


def _name(file: str) -> str:
    path = Path(file.partition("::")[0]).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


# ----------------------------------------------------------------------------------------------------- hooks of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the list of long files."""
    parser.addoption("--note-seconds", action="store_true", help="write tests/seconds_of_files.txt anew")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Replace the paths that were given by the files of this process, before a conftest.py is read."""
    given = early_config.known_args_namespace
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if process is not None:
        files = (Path(os.environ[_PLACE]) / process).read_text(encoding="utf-8").splitlines()
    else:
        files = files_of(given.file_or_dir, Marks(given.markexpr))
        if getattr(given, "numprocesses", None):
            early_config.pluginmanager.register(_Divided(files), "file-parts")
            files = []
    paths = set(given.file_or_dir)
    # The process that starts the others reads no tests; nor does one that is left without files.
    given.file_or_dir = files or [str(ROOT / "conftest.py")]
    args[:] = [each for each in args if each not in paths and not each.startswith("@")] + given.file_or_dir


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Read nothing in a process without files."""
    return True if collection_path == ROOT / "conftest.py" else None


class _Divided:
    """What the process does that starts the others."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._place = tempfile.TemporaryDirectory(prefix="headrace-parts-")
        self._scheduling: PartsScheduling | None = None
        self._session: pytest.Session | None = None
        self._seconds: dict[str, float] = defaultdict(float)
        os.environ[_PLACE] = self._place.name

    def pytest_configure_node(self, node: WorkerController) -> None:
        """Write down which files a process reads, before it starts."""
        specs = node.nodemanager.specs
        [number] = [number for number, spec in enumerate(specs) if spec is node.gateway.spec]
        part = parts_of(self._files, known_seconds(), len(specs))[number]
        text = "".join(f"{file}\n" for file in part)
        (Path(self._place.name) / node.gateway.id).write_text(text, encoding="utf-8")

    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> PartsScheduling:
        """Give each process the tests that it has read."""
        self._scheduling = PartsScheduling(config.getoption("tx"))
        return self._scheduling

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Count the tests of all processes: xdist keeps the number of one, and a run without tests has a code of its own."""
        self._session = session
        try:
            return (yield)
        finally:
            self._count()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up how long the tests of a file take, and let pytest show which part of all tests has run."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        self._count()

    def _count(self) -> None:
        if self._scheduling is not None and self._session is not None:
            self._session.testscollected = self._scheduling.count

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the list of long files, if that was asked for."""
        self._place.cleanup()
        if session.config.getoption("note_seconds"):
            long = {file: seconds for file, seconds in self._seconds.items() if seconds >= _NOTED_SECONDS}
            lines = [f"{round(seconds)} {file}\n" for file, seconds in sorted(long.items())]
            _SECONDS.write_text("".join(lines), encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests with a mark that their file does not name: a run that wants this mark, and else what this one wants, would not
    read the file.
    """
    unwanted = Marks(config.option.markexpr).unwanted
    for mark in unwanted & set(_WANTED_SOMEWHERE):
        others = unwanted - {mark}
        chosen = (item for item in items if not any(item.get_closest_marker(other) for other in others))
        files = {item.path for item in chosen if item.get_closest_marker(mark)}
        hidden = [str(file) for file in sorted(files) if not _says(file.read_text(encoding="utf-8"), mark)]
        if hidden:
            raise pytest.UsageError(
                f"tests of {', '.join(hidden)} are marked {mark!r} by another file: name pytest.mark.{mark} in the file itself, so that "
                "a run of these tests reads it"
            )
