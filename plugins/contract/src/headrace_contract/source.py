"""The contract of sources."""

from __future__ import annotations

from headrace_contract.source_ranges import SourceRangeChecks
from headrace_contract.source_reading import SourceReadingChecks
from headrace_contract.source_world import SourceWorldChecks


class SourceContract(SourceReadingChecks, SourceRangeChecks, SourceWorldChecks):
    """What every source must do. An author gives ``make_source``, ``add_queue`` and ``write``; see docs/contract-suite.md.

    class TestMySource(SourceContract):
        def make_source(self):
            return MySource(MySource.Settings.of({"directory": str(self.tmp_path)}))

        def add_queue(self):
            (self.tmp_path / f"{next(self.numbers)}.log").touch()
            ...

        def write(self, queue, bodies):
            ...
    """
