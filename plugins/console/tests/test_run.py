"""``headrace run``: what is said where, exit codes, signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import headrace as hr
import pytest
from headrace_console import running
from typer.testing import Result

WriteFile = Callable[..., Path]
Command = Callable[..., Result]

SCRIPT = Path(sys.executable).with_name("headrace")
PATIENCE_SECONDS = 60


def run_script(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments], capture_output=True, text=True, cwd=cwd, timeout=PATIENCE_SECONDS, check=False
    )


def test_rows_go_to_standard_output_and_the_report_to_standard_error(simple_job: Path, tmp_path: Path) -> None:
    done = run_script("run", simple_job, "--backend", "light", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == '{"a":2}\n{"a":3}\n{"a":4}\n'
    bad, *report = done.stderr.splitlines()
    assert '"offset":5' in bad
    assert re.fullmatch(r"✓ test.simple on light: finished after \d+\.\d s", report[0])
    assert re.fullmatch(r"  records read  6  \([\d,]+/s\)", report[1])
    assert report[2:] == [
        "  rows written  3 to to_print",
        "  dead letters  1 to bad (target 'stderr')",
        "    1 × memory: DecodeError: not valid JSON at byte #: object keys must be strings, found 'b'",
    ]


def test_a_failing_job_exits_with_1_and_says_why(headrace: Command, write_file: WriteFile, simple_text: str) -> None:
    path = write_file(simple_text.replace('"test", "simple"', '"test", "simple", bad_records="stop"').replace(
        '.dead_letters(lambda bad: bad.to_print(target="stderr", name="bad"))', ""
    ))  # fmt: skip
    result = headrace("run", path, "-b", "light")
    assert result.exit_code == 1
    assert "✗ test.simple on light: failed after" in result.stderr
    assert "bad record at 'memory'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_job_exits_with_2_and_a_hint(headrace: Command, write_file: WriteFile, simple_text: str) -> None:
    path = write_file(simple_text.replace("a >= 2", "aa >= 2"))
    result = headrace("run", path, "-b", "light")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: unknown column")
    assert "hint: did you mean" in result.stderr
    assert 'at job.py, line 9: .where("aa >= 2")' in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(headrace: Command, write_file: WriteFile) -> None:
    path = write_file("1 / 0\n")
    assert "Traceback" not in headrace("run", path).stderr
    result = headrace("run", path, "--debug")
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert "ZeroDivisionError: division by zero" in result.stderr


def test_a_backend_that_is_not_installed(headrace: Command, simple_job: Path) -> None:
    result = headrace("run", simple_job, "-b", "lihgt")
    assert result.exit_code == 2
    assert "no backend 'lihgt' is installed" in result.stderr
    assert "did you mean 'light'?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--option", "max_batch_recods=1"], "did you mean 'max_batch_records'?"),
        (["--option", "max_batch_records=many"], "Expected `int`"),
        (["--option", "retry_timeout=soon"], "'soon' is not a duration"),
        (["--option", "checkpoint=x"], "write --checkpoint x"),
        (["--option", "until"], "expected KEY=VALUE"),
        (["--set", "a=1"], "takes no arguments"),
        (["--until", "tomorrow"], "tomorrow"),
        (["--no-such-flag"], "No such option"),
    ],
)
def test_wrong_use_exits_with_2(headrace: Command, simple_job: Path, arguments: list[str], message: str) -> None:
    result = headrace("run", simple_job, "-b", "light", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_options_reach_run_and_backend(headrace: Command, simple_job: Path) -> None:
    options = ["-o", "max_batch_records=2", "-o", "retry_timeout=7 s", "-o", "checkpoint_interval=1 s"]
    result = headrace("run", simple_job, "-b", "light", *options)
    assert result.exit_code == 0
    assert running.run_options(["max_batch_records=2", "show_progress=true", "retry_timeout=7 s"]) == {
        "max_batch_records": 2,
        "show_progress": True,
        "retry_timeout": "7 s",
    }


def test_a_checkpoint_goes_on_where_it_was(headrace: Command, simple_job: Path, tmp_path: Path) -> None:
    first = headrace("run", simple_job, "-b", "light", "--checkpoint", tmp_path / "state")
    second = headrace("run", simple_job, "-b", "light", "--checkpoint", tmp_path / "state")
    assert first.stdout.count("\n") == 3
    assert second.stdout == ""
    assert "records read  0" in second.stderr


def test_arguments_of_a_job_function(headrace: Command, write_file: WriteFile) -> None:
    path = write_file("""
        import headrace as hr
        from headrace.testing import MemorySource

        def job(least: int = 0):
            source = MemorySource({"q": [b'{"a": %d}' % number for number in range(5)]})
            return hr.stream("t", "f").from_(source, format="json", schema={"a": "int64"}).where(f"a >= {least}").print()
    """)
    assert headrace("run", path, "-b", "light", "--set", "least=4").stdout == '{"a":4}\n'


def test_a_bug_in_a_backend_is_a_message_too(
    headrace: Command, simple_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(hr.Job, "start", explode)
    result = headrace("run", simple_job)
    assert result.exit_code == 1
    assert (
        result.stderr
        == "error: ZeroDivisionError: oh\n  hint: this error was not expected; --debug shows the whole traceback\n"
    )


def test_a_job_whose_input_is_all_dead_letters_is_no_success(
    headrace: Command, write_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_file("""
        import headrace as hr
        from headrace.testing import MemorySource

        bodies = [b'{"a": "x%d"}' % number for number in range(20)] + [b"no json"]
        job = hr.stream("t", "bad").from_(MemorySource({"q": bodies}), format="json", schema={"a": "int64"}).print()
    """)
    result = headrace("run", path, "-b", "light")
    assert result.exit_code == 3
    assert "✓" not in result.stderr
    assert "! t.bad on light: finished after" in result.stderr
    assert "dead letters  21 to dead_letters_file (path 'dead-letters/t.bad')" in result.stderr
    assert "20 × memory: DecodeError: column 'a': expected int64, found string" in result.stderr
    assert "1 × memory: DecodeError: not valid JSON at byte #" in result.stderr
    assert "nothing was written: every record that was read is a dead letter" in result.stderr


def test_a_sink_with_a_bug_stops_the_job_and_shows_where(headrace: Command, write_file: WriteFile) -> None:
    path = write_file("""
        import headrace as hr
        from headrace.testing import MemorySource

        class Broken(hr.Sink):
            def batch_insert(self, batch):
                self.rows.extend(batch.rows())

        source = MemorySource({"q": [b'{"a": %d}' % number for number in range(500)]})
        job = hr.stream("t", "bug").from_(source, format="json", schema={"a": "int64"}).to(Broken())
    """)
    result = headrace("run", path, "-b", "light")
    assert result.exit_code == 1
    assert "✗ t.bug on light: failed" in result.stderr
    assert "sink 'to_broken' " in result.stderr
    assert "AttributeError: 'Broken' object has no attribute 'rows'" in result.stderr
    assert "in batch_insert: self.rows.extend(batch.rows())" in result.stderr


# ------------------------------------------------------------------------------------------------------------ signals

SLOW_TO_START_JOB = """
    import threading
    import headrace as hr
    from headrace.testing import MemorySource

    class Slow(hr.Sink):
        def prepare(self, schema):
            print("starting", flush=True)
            while not threading.Event().wait(0.05):
                pass

        def batch_insert(self, batch):
            pass

    source = MemorySource({"q0": [b'{"a": 1}']})
    job = hr.stream("test", "slow").from_(source, format="json", schema={"a": "int64"}).to(Slow())
"""
SLOW_TO_LOAD_JOB = """
    import threading

    print("loading", flush=True)
    while not threading.Event().wait(0.05):
        pass
"""
ENDLESS_JOB = """
    import headrace as hr
    from headrace.testing import MemorySource

    source = MemorySource({"q0": [b'{"a": 1}']})
    job = hr.stream("test", "endless").from_(source, format="json", schema={"a": "int64"}).print()
"""
HANGING_JOB = """
    import threading
    import headrace as hr
    from headrace.testing import MemorySource

    def hang(row):
        print("hanging", flush=True)
        threading.Event().wait()

    source = MemorySource({"q0": [b'{"a": 1}']})
    job = hr.stream("test", "hanging").from_(source, format="json", schema={"a": "int64"}).for_each(hang).print()
"""


@pytest.fixture
def endless(write_file: WriteFile, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a job that does not end by itself; when the test is over it is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        command: list[str | Path] = [SCRIPT, "run", write_file(text), "-b", "light", "--until", "never"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def next_line(stream: IO[str] | None, process: subprocess.Popen[str]) -> str:
    """Return the next line; a process that says nothing is killed, so that reading ends."""
    assert stream is not None
    watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
    watchdog.start()
    try:
        return stream.readline()
    finally:
        watchdog.cancel()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_gracefully_with_a_report(
    endless: Callable[[str], subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = endless(ENDLESS_JOB)
    assert next_line(process.stdout, process) == '{"a":1}\n'
    process.send_signal(number)
    _, messages = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert "stopping: finishing the current batch" in messages
    assert "✓ test.endless on light: stopped after" in messages
    assert "  rows written  1 to to_print" in messages


# Both signals and both moments in every run; all pairs of them in the slow runs.
@pytest.mark.parametrize(
    ("text", "line", "number"),
    [
        (SLOW_TO_LOAD_JOB, "loading\n", signal.SIGINT),
        (SLOW_TO_START_JOB, "starting\n", signal.SIGTERM),
        pytest.param(SLOW_TO_LOAD_JOB, "loading\n", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(SLOW_TO_START_JOB, "starting\n", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_before_the_job_has_started_ends_the_command(
    endless: Callable[[str], subprocess.Popen[str]], text: str, line: str, number: signal.Signals
) -> None:
    process = endless(text)
    assert next_line(process.stdout, process) == line
    process.send_signal(number)
    _, messages = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, messages) == (0, "stopped before the job had started\n")


def test_sigterm_is_handled_before_anything_is_imported() -> None:
    code = "import sys; from headrace_console import command; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "typer" not in done.stdout
    code = "import os, signal, sys; sys.argv = ['headrace', 'version']; from headrace_console import command\n"
    code += "sys.modules['typer'] = None\n"
    code += "import builtins; imported = builtins.__import__\n"
    code += "def importing(name, *rest, **more):\n"
    code += "    os.kill(os.getpid(), signal.SIGTERM) if name == 'headrace_console.app' else None\n"
    code += "    return imported(name, *rest, **more)\n"
    code += "builtins.__import__ = importing\n"
    code += "command.main()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "terminated\n")


def test_a_second_signal_stops_at_once(endless: Callable[[str], subprocess.Popen[str]]) -> None:
    process = endless(HANGING_JOB)
    assert next_line(process.stdout, process) == "hanging\n"
    process.send_signal(signal.SIGINT)
    assert next_line(process.stderr, process) == "\n"
    assert next_line(process.stderr, process).startswith("stopping:")
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "stopped at once; records read after the last checkpoint are read again" in messages


def test_handlers_that_a_backend_puts_in_place_do_not_win(
    monkeypatch: pytest.MonkeyPatch, simple_job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's context has a handler of its own for Ctrl-C, which would kill the job."""
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []
    start = hr.Job.start

    def start_and_take_signal(self: hr.Job, *arguments: object, **options: object) -> hr.JobHandle:
        signal.signal(signal.SIGINT, lambda *_: seen.append("the backend's"))
        handle = start(self, "light", until=None)
        wait = handle.wait

        def wait_after_signal(*arguments: object) -> hr.JobReport:
            os.kill(os.getpid(), signal.SIGINT)
            return wait(*arguments)  # type: ignore[arg-type]

        handle.wait = wait_after_signal  # type: ignore[method-assign,assignment]
        return handle

    monkeypatch.setattr(hr.Job, "start", start_and_take_signal)
    monkeypatch.setattr(os, "_exit", lambda code: seen.append(code))
    try:
        code = running.run(str(simple_job), backend="light", until=None, checkpoint=None, options=(), parameters=())
    finally:
        after = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
    assert code == 0
    assert "stopped after" in capsys.readouterr().err
    assert "the backend's" not in seen
    assert after is before


def test_output_that_nobody_reads_ends_the_job_without_complaints(simple_job: Path, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command: list[str | Path] = [SCRIPT, "run", simple_job, "-b", "light"]
    done = subprocess.run(
        command,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    os.close(write_end)
    assert done.returncode == 1
    assert "cannot print to stdout" in done.stderr
    assert "Exception ignored" not in done.stderr


# ---------------------------------------------------------------------------------------------------------- terminals


@pytest.mark.parametrize(("prints", "shows_progress"), [(False, True), (True, False)])
def test_progress_shows_on_a_terminal_unless_rows_are_printed_there(
    write_file: WriteFile, simple_text: str, tmp_path: Path, prints: bool, shows_progress: bool
) -> None:
    pty = pytest.importorskip("pty", reason="needs a Unix terminal")
    text = simple_text.replace('to_print(target="stderr", name="bad")', "to(MemorySink())")
    text = text.replace("import MemorySource", "import MemorySink, MemorySource")
    if not prints:
        text = text.replace(".print()", ".to(MemorySink())")
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [SCRIPT, "run", write_file(text), "-b", "light"], stdout=inner, stderr=inner, stdin=inner, cwd=tmp_path
    )
    os.close(inner)
    shown = read_terminal(outer)
    assert process.wait(PATIENCE_SECONDS) == 0, shown
    assert ("6 records  " in shown) is shows_progress
    assert "records read  6" in shown


def read_terminal(descriptor: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:  # Linux says so that the other side has closed
            part = b""
        if not part:
            os.close(descriptor)
            return b"".join(parts).decode()
        parts.append(part)


def test_a_queue_that_cannot_be_read_to_its_end_is_no_success(
    headrace: Command, write_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/good.ndjson").write_text('{"a": 1}\n')
    Path("in/bad.ndjson.gz").write_bytes(b"\x1f\x8b no gzip")
    path = write_file("""
        import headrace as hr

        job = hr.stream("t", "broken").from_file("in", format="json", schema={"a": "int64"}).to_file("out")
    """)
    result = headrace("run", path, "-b", "light")
    assert result.exit_code == 4, result.stderr
    assert "! t.broken on light: finished after" in result.stderr
    assert "broken queue  file/in/bad.ndjson.gz at offset 0: in/bad.ndjson.gz is not valid gzip" in result.stderr
    stopped = headrace("run", path, "-b", "light", "--option", "broken_queues=stop")
    assert stopped.exit_code == 2, stopped.stderr
    assert "in/bad.ndjson.gz is not valid gzip" in stopped.stderr
