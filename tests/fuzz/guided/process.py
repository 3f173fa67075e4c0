"""One process of libFuzzer for one target: ``python -m tests.fuzz.guided.process TARGET`` and options of libFuzzer; run.py starts it."""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

# What is imported from here on tells which of its lines run.
with atheris.instrument_imports(include=["headrace", "headrace_.*", "yaml", "sqlglot"]):
    from tests.fuzz.guided.targets import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
