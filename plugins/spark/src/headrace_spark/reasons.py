"""What to say of an error that Spark reports: the lines that tell the reason, without the traces of Java."""

from __future__ import annotations

import re

#: An executor or the driver's Java cannot start a Python worker with what the job needs.
_NO_PYTHON = re.compile(
    r"Error from python worker|Cannot run program \"[^\"]*\"[^:]*: error=(2|13),|No module named '(headrace|pyspark)"
)
_PYTHON_HINT = (
    "PYSPARK_PYTHON names the Python of Spark's workers; it must exist at this path on the driver and on every "
    "worker, and have headrace with the plug-ins of the job"
)


def reason_of(error: Exception) -> str:
    """Return the reason of an error of Spark, py4j or Java, in one line. Java must still run when it is Java's."""
    java_error = getattr(error, "java_exception", None)
    text = str(java_error.toString() if java_error is not None else error)
    return reason_in(text) or type(error).__name__


def reason_in(text: str) -> str:
    """Return the first line of a text that says something, with the headings before it; "" when there is none.

    Spark's messages may begin with the name of an exception, and its text on the next lines.
    """
    said: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        said.append(line)
        if not line.endswith(":"):
            break
    return " ".join(said)


def python_hint(text: str) -> str | None:
    """Return what to do when the workers' Python is missing or lacks headrace, by Spark's text; None for other errors."""
    return _PYTHON_HINT if _NO_PYTHON.search(text) else None
