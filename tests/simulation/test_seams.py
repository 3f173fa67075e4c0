"""The code that runs in the world reaches time, threads, randomness and files through the seams only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.simulation.world.seams import SEAMS

ROOT = Path(__file__).resolve().parents[2]
#: What runs in the world.
PACKAGES = (
    "core/src/headrace",
    "plugins/light/src",
    "plugins/columnar/src",
    "plugins/stateful/src",
    "connectors/file/src",
    "contrib/buffer/src",
    "contrib/lease/src",
    "plugins/changes/src",
    "connectors/mysql/src",
    "connectors/elasticsearch/src",
    "connectors/rocketmq/src",
    "connectors/kafka/src",
    "plugins/dimension/src",
    "plugins/detection/src",
)
#: Modules through which the outside is reached.
OUTSIDE = {
    "time", "os", "threading", "_thread", "random", "uuid", "secrets", "socket", "select", "selectors", "subprocess", "multiprocessing",
    "queue",
    "tempfile", "shutil", "fcntl", "mmap", "signal", "asyncio", "concurrent.futures", "ssl", "http.client", "urllib.request",
}  # fmt: skip
_OPEN = ("NONBLOCK", "DIRECTORY", "NOFOLLOW", "RDONLY", "WRONLY", "RDWR", "CREAT", "TRUNC", "APPEND", "EXCL", "CLOEXEC")
#: Names in them that are seams, rest on seams, or change nothing outside.
HARMLESS = {
    "time": {"gmtime", "localtime", "strftime", "struct_time", "thread_time", "total_seconds"},
    "os": {
        "path", "fspath", "PathLike", "fsdecode", "fsencode", "strerror", "sep", "environ", "getuid", "cpu_count", "sched_getaffinity",
        "get_terminal_size", "getcwd", "sysconf", "devnull", "stat_result", "DirEntry",
        # They read, from the real files that the disk of a world consists of.
        "stat", "fstat", "lstat", "scandir", "listdir", "walk", "read", "pread", "lseek", "access", "readlink", "R_OK",
        "SEEK_END", "SEEK_SET",
        # They go through other functions of os.
        "makedirs", "removedirs",
        # They change what no crash depends on: who may read a file, and what the kernel keeps of it in memory.
        "chmod", "fchmod", "utime", "posix_fadvise",
        *(f"O_{name}" for name in _OPEN),
        *(f"POSIX_FADV_{name}" for name in ("DONTNEED", "SEQUENTIAL", "WILLNEED")),
    },
    "threading": {
        "Event", "Condition", "Thread", "Timer", "Semaphore", "BoundedSemaphore", "get_ident", "current_thread", "main_thread", "local",
        "enumerate",
    },
    "fcntl": {"flock", "LOCK_EX", "LOCK_SH", "LOCK_NB", "LOCK_UN"},  # real locks of real files
    "shutil": {"rmtree", "get_terminal_size"},
    "uuid": {"uuid4", "UUID", "uuid5", "NAMESPACE_URL"},
    "concurrent.futures": {"Future", "Executor", "ThreadPoolExecutor", "wait"},
    "random": {"Random", "random"},
    "queue": {"Empty"},
    "tempfile": {"TemporaryFile", "gettempdir"},  # a file without a name: gone with a crash
    "ssl": {"SSLContext", "SSLError", "CERT_NONE", "create_default_context"},  # options of connections
    "socket": {"inet_pton", "inet_ntoa", "AF_INET", "AF_INET6", "gethostname"},  # texts of addresses
}  # fmt: skip
#: Files that reach further, and why that does not matter to what is simulated.
EXCEPTIONS = {
    "core/src/headrace/foundation/faults.py": "kills the process: in the world fault points are seams, and it is not called",
    "core/src/headrace/foundation/logs.py": "writes events to a stream of the process",
    "core/src/headrace/foundation/clock.py": "the seam of the code itself; ManualClock has a lock for threads of tests",
    "core/src/headrace/foundation/sockets.py": "waits for sockets of connectors, which are not simulated",
    "core/src/headrace/foundation/freed_memory.py": "talks to the allocator",
    "core/src/headrace/interfaces/frozen_state.py": "a file without a name, in memory: the bytes of a state are read back at once",
    "core/src/headrace/interfaces/mapped_memory.py": "files without a name, for state that does not fit into memory: gone with a crash",
    "core/src/headrace/jobs/collecting.py": "``collect`` of a user at a terminal: results go through a directory of the machine",
    "core/src/headrace/runtime/control.py": "sends a signal to see whether a process lives: only who asks a job from outside does",
    "plugins/dimension/src/headrace_dimension/mapped_arrays.py": "maps a file without a name, which is gone with a crash",
    "plugins/dimension/src/headrace_dimension/table_files.py": "copies of tables that processes of Spark share",
    "plugins/light/src/headrace_light/state_memory.py": "RocksDB writes its files itself, for state that does not fit into memory",
    "plugins/light/src/headrace_light/workers": "other processes: not simulated yet (ADR 043)",
    "connectors/file/src/headrace_file/wake_up.py": "woken by the system for a file that is written to: not in a world, by a seam",
    "connectors/rocketmq/src/headrace_rocketmq/transport.py": "options of sockets, and TLS, which is not simulated; it connects by a seam",
    "connectors/rocketmq/src/headrace_rocketmq/native_child.py": "another process, with a library in C",
    "connectors/rocketmq/src/headrace_rocketmq/native_consumer.py": "another process, with a library in C",
    "connectors/rocketmq/src/headrace_rocketmq/native_source.py": "reads what that process gives",
    "connectors/kafka/src/headrace_kafka/kafka_python_client.py": "sockets of kafka-python, the other client, which is not simulated",
    "connectors/mysql/src/headrace_mysql/binlog": "reads a server's log over a socket: not simulated; it writes nothing",
    "connectors/file/src/headrace_file/streams.py": "pipes and compressed streams that other programs fill: not simulated",
}


def files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def reached(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Yield what a module names of the modules of the outside: module, name, line."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({each.asname or each.name: each.name for each in node.names if each.name in OUTSIDE})
        elif isinstance(node, ast.ImportFrom) and node.module in OUTSIDE:
            yield from ((node.module, each.name, node.lineno) for each in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := names.get(ast.unparse(node.value))):
            yield module, node.attr, node.lineno


def test_the_outside_is_reached_through_seams_only() -> None:
    seams = {(owner.__name__, name) for owner, name in SEAMS}
    found = [
        f"{name}:{line}: {module}.{attribute}"
        for path in files()
        for name in [path.relative_to(ROOT).as_posix()]
        if not any(name == each or name.startswith(f"{each}/") for each in EXCEPTIONS)
        for module, attribute, line in reached(parsed(path))
        if (module, attribute) not in seams and attribute not in HARMLESS.get(module, set())
    ]
    assert not found, (
        "a seam is missing (tests/simulation/world/seams.py), or an exception with its reason:\n" + "\n".join(found)
    )


def test_exceptions_are_needed() -> None:
    assert [each for each in EXCEPTIONS if not (ROOT / each).exists()] == []


def test_no_seam_is_bound_before_the_world_is_entered() -> None:
    """``from time import monotonic``, and ``time.monotonic`` as a default or its factory, keep the real one."""
    seams = {(owner.__name__, name) for owner, name in SEAMS if owner.__name__ in OUTSIDE} | {("io", "open")}
    found = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom):
                bound = [(node.module, each.name) for each in node.names]
            elif isinstance(node, ast.arguments):
                defaults = [each for each in (*node.defaults, *node.kw_defaults) if isinstance(each, ast.Attribute)]
                bound = [(ast.unparse(each.value), each.attr) for each in defaults]
            elif (
                isinstance(node, ast.keyword)
                and node.arg == "default_factory"
                and isinstance(node.value, ast.Attribute)
            ):
                bound = [(ast.unparse(node.value.value), node.value.attr)]
            else:
                continue
            found += [f"{name}: {module}.{attribute}" for module, attribute in bound if (module, attribute) in seams]
    assert not found, found


def test_datetime_is_not_asked_for_the_time() -> None:
    """It asks the machine's clock itself, which no seam can replace."""
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        for path in files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("now", "utcnow", "today")
        and ast.unparse(node.func.value) in ("datetime", "datetime.datetime", "date", "datetime.date")
    ]
    assert not found, found
