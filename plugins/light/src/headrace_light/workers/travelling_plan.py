"""The plan as bytes for the workers: as cloudpickle writes it, without sinks, and without sources that only the engine reads.

Those stay in the engine's process. So their connections and passwords are not sent to workers. Sources of dimension tables are sent:
a worker that needs a table loads it.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle
from headrace.foundation.errors import PlanError
from headrace.interfaces.sink import Sink
from headrace.interfaces.source import Source
from headrace.plan.graph import Plan
from headrace.runtime.code_of_jobs import unimportable_modules_by_value


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, buffer: io.BytesIO, plan: Plan) -> None:
        super().__init__(buffer)
        sources = [node.source for node in plan.sources.values()]
        self._of_engine = {id(source) for source in sources if not source.read_by_workers}

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Sink) or (isinstance(value, Source) and id(value) in self._of_engine):
            return _nothing, ()
        return super().reducer_override(value)


def _nothing() -> None:
    return None


def packed(plan: Plan) -> bytes:
    """Return a plan as bytes. Raises PlanError when something in it cannot be copied to another process."""
    buffer = io.BytesIO()
    with unimportable_modules_by_value(cloudpickle):
        try:
            _Pickler(buffer, plan).dump(plan)
        except Exception as error:  # pickling an object of the user may raise anything; then the plan cannot be copied
            raise PlanError(
                f"the job cannot be copied to worker processes: {error}",
                job=plan.job_name,
                option="workers",
                hint="a function or object of the job holds something that cannot be pickled, such as a lock, a connection or an "
                "open file; create it at its first use, or run the job with workers=1",
            ) from error
    return buffer.getvalue()


def unpacked(content: bytes) -> Plan:
    """Return what ``packed`` gave."""
    plan: Plan = cloudpickle.loads(content)
    return plan
