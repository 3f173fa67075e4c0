"""What to say of an error that Spark reports: the lines that tell the reason, without the traces of Java."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

#: An executor or the driver's Java cannot start a Python worker in which the job's modules can be imported.
_NO_PYTHON = re.compile(
    r"Error from python worker|Cannot run program \"[^\"]*\"[^:]*: error=(2|13),|No module named '(headrace|pyspark)"
    r"|PYTHON_VERSION_MISMATCH"
)
_TRACEBACK = "Traceback (most recent call last):"
#: A line of a traceback that is not indented: the exception, with its module.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(: |$)")
_KILLED = re.compile(r"Application has been killed. Reason: (.+)")
_PYTHON_HINT = (
    "PYSPARK_PYTHON names the Python of Spark's workers; it must exist at this path on the driver and on every "
    "worker, be of the driver's minor version, and have headrace with the plug-ins of the job; or send them with the job: headrace package"
)


def reason_of(error: Exception) -> str:
    """Return the reason of an error of Spark, py4j or Java, in one line. Java must still run when it is Java's."""
    java_error = getattr(error, "java_exception", None)
    text = str(java_error.toString() if java_error is not None else error)
    return reason_in(text) or type(error).__name__


def reason_in(text: str) -> str:
    """Return the first line of a text that says something, with the headings before it; "" when there is none.

    Spark's messages may begin with the name of an exception, and its text on the next lines. Of a traceback of Python the
    exception is taken.
    """
    said: list[str] = []
    lines = text.splitlines()
    for place, line in enumerate(map(str.strip, lines)):
        if line.endswith(_TRACEBACK):
            said += filter(None, (line.removesuffix(_TRACEBACK).strip(), _raised_in(lines[place + 1 :])))
            break
        if line:
            said.append(line)
            if not line.endswith(":"):
                break
    return " ".join(said)


def _raised_in(lines: Sequence[str]) -> str:
    """Return the exception at the end of a traceback, the last one if it has several; "" when there is none."""
    raised = ""
    for line in lines:
        if line.startswith("\tat "):  # where Java's begins
            break
        if _RAISED.match(line):
            raised = line.strip()
    return raised


def killed_because(log: str) -> str | None:
    """Return why the master gave the application up, by Spark's log: for errors that say only that the context is stopped."""
    found = _KILLED.findall(log)
    return str(found[-1]).strip() if found else None


def hint_for(text: str, log_file: Path | None) -> str | None:
    """Return what to do, by Spark's text: about the workers' Python where it is missing or lacks headrace, else read the log.

    ``log_file``: that of headrace's own Spark; None: there is none to name.
    """
    if _NO_PYTHON.search(text):
        return _PYTHON_HINT
    return None if log_file is None else f"Spark's log, until this process ends: {log_file}"
