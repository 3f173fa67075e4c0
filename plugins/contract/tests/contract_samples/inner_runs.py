"""Runs contracts in a pytest of their own and tells what became of each check."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contract_samples import recorder

SAMPLES = Path(__file__).parent


@dataclass
class Results:
    """What became of the checks: per class, check name -> texts of failures (empty when it passed)."""

    code: int
    output: str
    failed: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    passed: dict[str, set[str]] = field(default_factory=dict)
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)


def run(file: Path, *options: str, root: Path, one_in: int = 1) -> Results:
    """Run the contracts (classes named Broken… or Test…) of a file; of the checks that are to pass, one in ``one_in``."""
    record = root / "record.json"
    (root / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nxfail_strict = true\n")
    path = os.pathsep.join([str(SAMPLES.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", str(file), "-c", str(root / "pytest.ini"), "--rootdir", str(root),
            "-p", "contract_samples.recorder", "-p", "no:cacheprovider", "--import-mode=importlib",
            f"--confcutdir={file.parent}",
            "-o", "python_classes=Broken Test", "-q", "--tb=short", f"--basetemp={root / 'tmp'}", *options,
        ],
        env={**os.environ, recorder.VARIABLE: str(record), recorder.ONE_IN: str(one_in), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip
    results = Results(done.returncode, done.stdout)
    if record.exists():
        for node, reports in json.loads(record.read_text()).items():
            _, kind, test = node.split("::")
            name = re.sub(r"\[.*", "", test)
            for report in reports:
                if report["outcome"] == "failed":
                    results.failed.setdefault(kind, {}).setdefault(name, []).append(report["text"])
                elif report["outcome"] == "skipped":
                    results.skipped.setdefault(kind, {})[name] = report["text"]
                else:
                    results.passed.setdefault(kind, set()).add(name)
    return results


def run_text(text: str, *options: str, root: Path) -> Results:
    """Run the contracts of a module given as text."""
    file = root / "test_inner.py"
    file.write_text(text)
    return run(file, *options, root=root)


def merged(parts: Sequence[Results]) -> Results:
    """Return several results as one."""
    whole = Results(max(part.code for part in parts), "\n".join(part.output for part in parts))
    for part in parts:
        whole.failed.update(part.failed)
        whole.passed.update(part.passed)
        whole.skipped.update(part.skipped)
    return whole
