"""What is said of errors of Spark: never an empty text, and never a line of a trace."""

from __future__ import annotations

import pytest
from headrace_spark.processes.reasons import hint_for, killed_because, reason_in

_HEADING = "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance:"
_CREATED = f"""{_HEADING} Traceback (most recent call last):
  File "/opt/pyspark/sql/worker/utils.py", line 98, in worker_run
    main(infile, outfile)
ModuleNotFoundError: No module named 'headrace_spark'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/pyspark/sql/worker/utils.py", line 62, in worker_run
    check_python_version(infile)
pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] 3.12 and 3.11
\tat org.apache.spark.sql.Errors.failed(Errors.scala:12)
Caused by: something else
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("java.io.IOException: No space left\n\tat x.y(Z.java)", "java.io.IOException: No space left"),
        ("org.apache.spark.SparkException:\nError from python worker:\n  /bin/python: no\nmore",
         "org.apache.spark.SparkException: Error from python worker: /bin/python: no"),
        (_CREATED, f"{_HEADING} pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] 3.12 and 3.11"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "KeyError: 'a'"),
        ("Traceback (most recent call last):\n  File x", ""),
    ],
)  # fmt: skip
def test_the_reason_is_what_a_person_can_use(text: str, reason: str) -> None:
    assert reason_in(text) == reason


def test_the_workers_python_is_named_where_it_is_to_blame() -> None:
    assert "PYSPARK_PYTHON" in str(hint_for(_CREATED, None))
    assert hint_for("something else", None) is None


def test_why_the_master_gave_a_job_up_is_in_the_log() -> None:
    log = "18:39 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive! Giving up.\n"
    assert killed_because(f"18:38 WARN x\n{log}18:40 WARN y\n") == "All masters are unresponsive! Giving up."
    assert killed_because("18:38 WARN x\n") is None
