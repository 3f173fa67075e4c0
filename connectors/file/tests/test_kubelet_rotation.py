"""Logs of containers, as kubelet and Docker rotate and compress them: each line comes once, whenever the job looks.

kubelet compresses a rotated file at the next rotation and does not keep the time of its last change, so a compressed file may look younger
than one that was rotated after it.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from file_world import World
from headrace_file.rotated_order import is_later, order_key, ordered, stamp_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rotating_log import KEEPING
from test_any_rotation import BETWEEN, Everything, Log, SteppedLog, check

from tests.effort import examples


class ContainerLog(SteppedLog):
    """A container's log."""

    def rotate(self, way: str) -> Iterator[None]:
        """Rotate; whatever is read at a ``yield`` is read between two system calls."""
        self._rotations += 1
        yield from self._by_kubelet() if way == "kubelet" else self._by_docker()

    def _by_kubelet(self) -> Iterator[None]:
        for rotated in sorted(self.path.parent.glob(f"{self.path.name}.*")):
            if rotated.suffix != ".gz":
                yield from self._packed(rotated, rotated.with_name(f"{rotated.name}.tmp"))
        os.rename(self.path, self.path.with_name(f"{self.path.name}.20260131-{self._rotations:06d}"))
        yield
        self.path.touch()
        yield

    def _by_docker(self) -> Iterator[None]:
        """As json-file does with ``compress``."""
        for number in range(20, 0, -1):
            old = self.path.with_name(f"{self.path.name}.{number}.gz")
            if old.exists():
                os.rename(old, self.path.with_name(f"{self.path.name}.{number + 1}.gz"))
                yield
        aside = self.path.with_name(f"{self.path.name}.1")
        os.rename(self.path, aside)
        yield
        self.path.touch()
        yield
        yield from self._packed(aside)

    def _packed(self, rotated: Path, by_way_of: Path | None = None) -> Iterator[None]:
        packed = rotated.with_name(f"{rotated.name}.gz")
        data = gzip.compress(rotated.read_bytes())
        if by_way_of is not None:
            by_way_of.write_bytes(data[: len(data) // 2])
            yield
            by_way_of.write_bytes(data)
            yield
            os.rename(by_way_of, packed)
        else:
            packed.write_bytes(data)
        yield
        rotated.unlink()
        yield


def linked(made: Callable[[Path], Log]) -> Callable[[Path], Log]:
    """Return what makes a log in another directory and under another name, to which the path leads, as /var/log/containers has them."""

    def make(path: Path) -> Log:
        (path.parent / "pods").mkdir()
        path.symlink_to(path.parent / "pods" / "0.log")
        return made(path.parent / "pods" / "0.log")

    return make


STEPS = st.lists(st.one_of(st.tuples(st.just("write"), st.integers(1, 3)), st.just(("rotate", ""))), max_size=8)


@pytest.mark.parametrize("way", ["kubelet", "docker"])
@pytest.mark.parametrize("path", ["log", "log*"])
@settings(max_examples=examples(100, least=5), deadline=None, derandomize=True)
@given(steps=STEPS, between=st.lists(st.sampled_from(BETWEEN), max_size=60))
def test_each_line_comes_once(
    tmp_path_factory: pytest.TempPathFactory,
    path: str,
    way: str,
    steps: list[tuple[str, int | str]],
    between: list[str],
) -> None:
    taken = [(step, value or way) for step, value in steps]
    check(tmp_path_factory.mktemp("steps"), path, taken, between, ContainerLog)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(["kubelet", "docker", "logrotate"]),
    steps=st.lists(st.tuples(st.sampled_from(["write", "rotate"]), st.integers(1, 3)), max_size=8),
    ways=st.lists(st.sampled_from(KEEPING), min_size=8, max_size=8),
    between=st.lists(st.sampled_from(BETWEEN), max_size=60),
)
def test_each_line_of_a_log_behind_a_link_comes_once(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    steps: list[tuple[str, int]],
    ways: list[str],
    between: list[str],
) -> None:
    made = SteppedLog if kind == "logrotate" else ContainerLog
    taken: list[tuple[str, int | str]] = [
        (step, count if step == "write" else way if kind == "logrotate" else kind)
        for (step, count), way in zip(steps, ways, strict=False)
    ]
    check(tmp_path_factory.mktemp("steps"), "log", taken, between, linked(made))


@pytest.mark.parametrize("path", ["log", "log*"])
def test_a_file_that_is_being_compressed_for_long_is_not_read(tmp_path: Path, path: str) -> None:
    """The rotated file is there until the compressed one is whole."""
    world = World(tmp_path)
    log = ContainerLog(world.path("log"))
    everything = Everything(world, path)
    log.write(1)
    list(log.rotate("kubelet"))
    log.write(1)
    for _ in log.rotate("kubelet"):
        world.quiet()
        everything.read()
    log.write(1)
    for _ in range(5):
        world.quiet()
        everything.discover()
        everything.read()
    everything.close()
    assert everything.found == log.lines


@pytest.mark.parametrize("rotations", [2, 3])
def test_what_was_rotated_while_the_job_was_down_comes_in_its_order(tmp_path: Path, rotations: int) -> None:
    """A file that was compressed at a rotation has a later time of its last change than the one that was rotated then."""
    world = World(tmp_path)
    log = ContainerLog(world.path("log"))
    everything = Everything(world, "log")
    log.write(1)
    everything.read()
    everything.close()
    for _ in range(rotations):
        log.write(1)
        for _ in log.rotate("kubelet"):
            pass
    log.write(1)
    everything.restart()
    for _ in range(5):
        world.quiet()
        everything.read()
    everything.close()
    assert everything.found == log.lines


@pytest.mark.parametrize(
    ("name", "stamp"),
    [
        ("0.log.20260131-100000", "20260131100000"),
        ("0.log.20260131-100000.gz", "20260131100000"),
        ("app.log-20260131", "20260131"),
        ("app.log-20260131.gz", "20260131"),
        ("app.log.2026-01-31.zst", "20260131"),
        ("app.log-202601311504", "202601311504"),
        ("app.log-31012026", ""),  # not in the order of time
        ("app.log-20261301", ""),
        ("app.log-1706659200", ""),
        ("app.log.20260131.2", ""),  # the date is that of several files
        ("app.log.1", ""),
        ("app.log", ""),
    ],
)
def test_dates_of_names(name: str, stamp: str) -> None:
    assert stamp_of(name) == stamp


def test_dates_of_names_decide_where_they_have_one_form() -> None:
    late, early = 2_000, 1_000
    names = [path for _, path in ordered([("a-20260131.gz", late), ("a-20260201", early), ("a.1", early - 1)])]
    assert names == ["a.1", "a-20260131.gz", "a-20260201"]
    assert is_later("a-20260201", order_key("a-20260201", early), "a-20260131.gz", order_key("a-20260131.gz", late))
    assert not is_later("a.1", order_key("a.1", early), "a-20260131.gz", order_key("a-20260131.gz", late))
