"""Limits of jobs, with real processes. Those of control groups run in a machine of their own: tests/machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.foundation.errors import OptionError
from headrace_server.jobs_directory.settings import settings_of
from headrace_server.runner.limits import Limits, is_out_of_memory, says_out_of_memory, size_text
from headrace_server.supervision.cgroups import NoCgroupsError, of_this_process
from server_processes import ServerProcess
from server_world import World

from tests.eventually import eventually

#: A record fills the memory of its process: in Python, or in a library of Rust.
JOB = """
import headrace as hr
import polars as pl

def fill_python(row):
    kept = []
    while row["n"] >= 100:
        kept.append(bytearray(16 << 20))
    return row

def fill_rust(row):
    kept = pl.Series([1])
    while row["n"] >= 100:
        kept = kept.append(kept).rechunk()
    return row

job = (hr.stream("test", "copy")
       .from_file({events!r}, format="json", schema={{"n": "int64"}})
       .map(fill_{language}).to_file({out!r}, format="json"))
"""


@pytest.mark.parametrize("language", ["python", "rust"])
def test_a_job_over_its_limit_of_memory_is_told_so(server: ServerProcess, language: str) -> None:
    text = JOB.format(events=str(server.events), out=str(server.out), language=language)
    (server.jobs / "copy.py").write_text(text)
    (server.jobs / "job.yaml").write_text("health_window: 300 ms\nmemory_max_bytes: 600 MB\n")
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.wait_for_rows(100)
    server.add_events(100, 101)
    eventually(lambda: server.job()["job"]["problem"], "it fails", shown=server.log)
    assert "over its limit of 600 MB of memory (memory_max_bytes)" in server.job()["job"]["problem"]
    assert any("over its limit" in (run["reason"] or "") for run in server.job()["runs"])


def test_a_thread_that_gets_no_stack_is_a_lack_of_memory() -> None:
    assert is_out_of_memory(RuntimeError("can't start new thread"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("dictionary changed size during iteration"))


def test_a_process_that_says_nothing_of_memory_is_not_told_to_be_over_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    assert not says_out_of_memory(str(log))
    log.write_text("Fatal Python error: Segmentation fault\n" * 10)
    assert not says_out_of_memory(str(log))
    log.write_text("x\n" * 100_000 + "memory allocation of 268435456 bytes failed\n")
    assert says_out_of_memory(str(log))


@pytest.mark.parametrize(
    ("count", "text"), [(512 << 20, "512 MiB"), (512 * 10**6, "512 MB"), (2 << 30, "2 GiB"), (1_500_000, "1.5 MB"), (0, "0.0 MB")]
)  # fmt: skip
def test_a_size_is_told_as_it_was_written(count: int, text: str) -> None:
    assert size_text(count) == text


def test_processor_time_is_limited_only_by_a_control_group_and_refused_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.jobs / "job.yaml").write_text("cpu_max: 0.5\nstart: true\n")
    world.write("one")
    world.pass_time()
    problem = world.registry.job("one").problem
    assert problem is not None
    assert "cannot limit processor time: it was not looked for" in problem
    assert not world.launcher.runners
    world.close()


@pytest.mark.parametrize(
    "text", ["cpu_max: 0", "cpu_weight: 0", "cpu_weight: 10001", "cpu_max: much", "cpu_max: 1\nbackend: spark"]
)
def test_limits_that_cannot_be_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(OptionError, match=r"job\.yaml"):
        settings_of(tmp_path, "one")


def test_a_group_of_jobs_has_the_sums_of_their_limits(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.jobs / "job.yaml").write_text(
        "group: g\nmemory_max_bytes: 100 MB\njobs:\n  one: {open_files_max: 100}\n  two: {memory_max_bytes: 50 MB}\n"
    )
    world.write("one")
    world.write("two")
    world.pass_time()
    assert world.runner.specification.limits == Limits(memory_max_bytes=150 * 10**6)
    world.close()


@pytest.mark.parametrize(
    ("own", "mounts", "files", "reason"),
    [
        ("9:memory:/a\n", "1 2 0:3 / {root} rw - cgroup cgroup rw,memory\n", {}, "version 2 are not mounted"),
        ("0::/\n", "1 2 0:3 / {root} rw shared:9 - cgroup2 c rw\n", {"cgroup.controllers": "hugetlb\n"}, "memory and cpu"),
        ("0::/a.service\n", "1 2 0:3 / {root} rw - cgroup2 c rw\n", {}, "DelegateSubgroup=server"),
        ("0::/x\n", "1 2 0:3 /y {root} rw - cgroup2 c rw\n", {}, "version 2 are not mounted"),
        ("0::/gone\n", "1 2 0:3 / {root} rw - cgroup2 c rw\n", {}, "No such file"),
    ],
)  # fmt: skip
def test_a_server_without_a_group_of_its_own_says_why(
    tmp_path: Path, own: str, mounts: str, files: dict[str, str], reason: str
) -> None:
    root = tmp_path / "cgroup"
    (tmp_path / "self").mkdir()
    root.mkdir()
    for name, content in files.items():
        (root / name).write_text(content)
    (tmp_path / "self" / "cgroup").write_text(own)
    (tmp_path / "self" / "mountinfo").write_text(mounts.format(root=root))
    with pytest.raises(NoCgroupsError, match=reason):
        of_this_process(on_stop="leave", proc=tmp_path)
