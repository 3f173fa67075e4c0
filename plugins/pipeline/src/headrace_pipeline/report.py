"""What ``headrace test`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.foundation.errors import JobError

from headrace_pipeline.testing import CaseResult, files_below, run_cases

AS_EXPECTED, DIFFERENT, WRONG = 0, 1, 2


def report_cases(targets: Sequence[Path], variables: Mapping[str, str]) -> int:
    """Run the cases of files, and of all pipeline files in folders; print the result of each. Returns the exit code.

    Raises JobError if there is no case at all, or none in a file that is named.
    """
    count = failed = wrong = 0
    for file, is_named in _files(targets):
        print(file)
        try:
            results = run_cases(file, variables)
        except JobError as error:
            wrong += 1
            print("  ! " + str(error).replace("\n", "\n    "))
            continue
        if not results:
            if is_named:
                raise JobError(f"{file} has no cases, so nothing was tested", hint="write them below the key cases:")
            print("  no cases")
        for result in results:
            _print(result)
        count += len(results)
        failed += sum(bool(result.differences) for result in results)
    if not count and not wrong:
        raise JobError(
            "no file has cases, so nothing was tested", hint="write test cases below the key cases: of a pipeline file"
        )
    said = f"{count} case{'' if count == 1 else 's'}, {failed} failed"
    print(said + (f", {wrong} file{'' if wrong == 1 else 's'} wrong" if wrong else ""))
    return WRONG if wrong else DIFFERENT if failed else AS_EXPECTED


def _files(targets: Sequence[Path]) -> list[tuple[Path, bool]]:
    """Return the files to test, and whether each was named itself."""
    found = []
    for target in targets:
        if target.is_dir():
            found += [(file, False) for file in files_below(target)]
        else:
            found.append((target, True))
    return found


def _print(result: CaseResult) -> None:
    if not result.differences:
        print(f"  ✓ {result.case.name}")
        return
    print(f"  ✗ {result.case.name} (line {result.case.line})")
    for line in result.differences:
        print(f"      {line}")
