"""Freed memory is used again instead of being given back to the system, where the C library can do so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

#: Frees and takes 64 MiB in four blocks, again and again; prints whether it was set, and how many pages the kernel made per turn.
PROGRAM = """
import ctypes, resource, sys
from headrace.foundation.freed_memory import keep_freed_memory

kept = sys.argv[1] == "keep" and keep_freed_memory(128 * 1024**2)
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def turn():
    blocks = [library.malloc(16 * 1024**2) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, 16 * 1024**2)
    for block in blocks:
        library.free(block)

turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    turn()
print(kept, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these limits")


def run(how: str, **environment: str) -> tuple[bool, float]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env={**plain, **environment}, capture_output=True, text=True, check=True
    )
    kept, pages = done.stdout.split()
    return kept == "True", float(pages)


@glibc
def test_what_is_freed_is_used_again() -> None:
    kept, pages = run("keep")
    given_back, new_pages = run("leave")
    assert (kept, given_back) == (True, False)
    # A page has 4 KiB, or 2 MiB where the kernel joins them.
    assert new_pages >= 8
    assert pages < new_pages / 4


@glibc
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_who_sets_a_limit_in_the_environment_has_chosen(name: str) -> None:
    assert not run("keep", **{name: "131072"})[0]
