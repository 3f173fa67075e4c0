"""Runs cases on a Spark cluster, as a user's program does: ``job.run(master=…)``, or ``job.run()`` under spark-submit.

python -m tests.cluster.program MASTER DIRECTORY NAME …
spark-submit … program.py submitted DIRECTORY NAME …

``HEADRACE_TEST_CLUSTER`` may hold further options as JSON: ``conf`` for Spark; which cases there are (``rows``: larger ones,
``freezes``: one that stops its worker process, ``meets``: one whose tasks wait for their copies, ``demo``, ``copies``: from Kafka
into MySQL; without any of these the conformance cases); and options of the run. A case that is done leaves a file ``done``; started
again, the program continues with the others.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.cases import copy_case, demo_case, larger_cases
from tests.cluster.freezing import freezing_case
from tests.cluster.meeting import meeting_case
from tests.conformance import run_cases
from tests.conformance.case import Case

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "HEADRACE_TEST_CLUSTER"
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    # As the driver: executors of tests live for seconds, in which Java would compile most of what they run.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # The functions of the cases are in modules of the tests, which no worker has.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}
#: Micro-batches are small, so that there are enough of them to kill something in.
_RECORDS = 100
_MAKERS: dict[str, Callable[..., list[Case]]] = {
    "rows": larger_cases,
    "freezes": lambda *given: [freezing_case(*given)],
    "meets": lambda *given: [meeting_case(*given)],
    "demo": lambda count: [demo_case(count)],
    "copies": lambda *given: [copy_case(*given)],
}


def main() -> None:
    """Run the cases that the command line names."""
    master, directory, *names = sys.argv[1:]
    given: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    conf = {**CONF, **given.pop("conf", {})}
    cases: list[Case] = []
    for kind, make in _MAKERS.items():
        if kind in given:
            of = given.pop(kind)
            cases += make(*of) if isinstance(of, list) else make(of)
    options: dict[str, Any] = {"max_micro_batch_records": _RECORDS, **given}
    if master != "submitted":
        options |= {"master": master, "conf": conf}
    run_cases.main("spark", directory, names, cases or run_cases.CASES, **options)


if __name__ == "__main__":
    main()
