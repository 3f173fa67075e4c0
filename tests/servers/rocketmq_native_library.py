"""Make a librocketmq.so for rocketmq-client-python 2.0.0 (PyPI), which does not bring one.

The only published build of RocketMQ's C++ client is in the older wheel rocketmq 0.4.4. It lacks four functions that
2.0.0 looks up when it is imported; a small library in front of it adds them. Two of them work (orderly sending by
sharding key); the other two (transactions) only report that they cannot.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.directories import cache_directory, digest, locked
from tests.servers.errors import MissingProgramError, TestServerError
from tests.servers.programs import find_program, require_program

_WHEEL = "rocketmq==0.4.4"
_SHIM = r"""
typedef int (*Selector)(int, void *, void *);
extern void *CreateProducer(const char *);
extern int SendMessageOrderly(void *, void *, Selector, void *, int, void *);

static int select_queue(int queues, void *message, void *key) {
    unsigned hash = 5381;
    for (const unsigned char *byte = key; *byte; byte++) hash = hash * 33 + *byte;
    return hash % queues;
}

void *CreateOrderlyProducer(const char *group) { return CreateProducer(group); }

int SendMessageOrderlyByShardingKey(void *producer, void *message, const char *key, void *result) {
    return SendMessageOrderly(producer, message, select_queue, (void *)key, 1, result);
}

void *CreateTransactionProducer(const char *group, void *check, void *argument) { return 0; }

int SendMessageTransaction(void *producer, void *message, void *execute, void *argument, void *result) { return -1; }
"""


def native_library_directory() -> Path:
    """The directory to put into LD_LIBRARY_PATH before Python starts; built the first time (network, C compiler)."""
    directory = cache_directory() / f"librocketmq-{digest(_SHIM.encode() + _WHEEL.encode())}"
    with locked(cache_directory() / "librocketmq.lock"):
        if not directory.is_dir():
            with tempfile.TemporaryDirectory(dir=cache_directory()) as scratch:
                built = Path(scratch) / "built"
                _build(Path(scratch), built)
                built.rename(directory)
    return directory


def _build(scratch: Path, output: Path) -> None:
    output.mkdir()
    wheel = scratch / "wheel"
    _run([*_installer(), "--no-deps", "--target", str(wheel), _WHEEL])
    client = next(wheel.rglob("librocketmq.so")).read_bytes()
    name, other_name = b"librocketmq.so\0", b"librocketcc.so\0"
    if client.count(name) != 1:
        raise TestServerError(f"the library in {_WHEEL} is not the one that this was written for")
    # The client proper takes another name, because the shim must have the one that Python loads.
    (output / "librocketcc.so").write_bytes(client.replace(name, other_name))
    for libraries in wheel.rglob(".libs"):
        shutil.copytree(libraries, output / ".libs")
    source = scratch / "shim.c"
    source.write_text(_SHIM)
    linked = ["-Wl,--no-as-needed", f"-L{output}", "-l:librocketcc.so", "-Wl,--allow-shlib-undefined"]
    names = ["-Wl,-rpath,$ORIGIN", "-Wl,-soname,librocketmq.so"]
    compiler = require_program("cc", "gcc libc6-dev")
    _run([str(compiler), "-shared", "-fPIC", "-o", str(output / "librocketmq.so"), str(source), *linked, *names])


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = find_program("uv")
    if uv:
        return [str(uv), "pip", "install", "--quiet", "--python", sys.executable]
    raise MissingProgramError("neither pip nor uv is installed; `python -m ensurepip` installs pip")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestServerError(f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    print(native_library_directory())
