"""Files and functions have the size that a reader can hold; errors do not vanish; own classes are not asked whether they have what
they declare; tests replace nothing by objects that agree with everything, and do not wait for time.

Each rule has the list of places that may break it, each with its reason. A place that no longer breaks its rule must leave the list.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.house.python_files import Facts, facts, facts_of, import_circles

FILE_LINES_MAX = 600
#: Names that say nothing of what lives there.
EMPTY_NAMES = {"utils", "util", "common", "misc", "helpers", "helper", "tools", "stuff"}

_GENERATOR = "one random sequence makes all files: the order in which it is asked is the data of published results"
LONG_FUNCTIONS = {
    "tests/sql/generators/blinkgen.py: main": _GENERATOR,
    "tests/sql/generators/opsgen.py: main": _GENERATOR,
}

_USED_ANYWAY = "another library has no class for what a body can do wrong, and the reason is found by a second reader"
SWALLOWED = {
    "contrib/avro/tests/test_same_as_fastavro.py": _USED_ANYWAY,
    "plugins/contract/src/headrace_contract/codec.py": "asks whether a body raises: the next check shows the error itself",
    "plugins/contract/src/headrace_contract/handled_errors.py": "makes an error of a class whose __init__ wants what nobody knows",
    "plugins/contract/src/headrace_contract/sink_use.py": "an error was raised on purpose, and any that comes of it is right",
    "plugins/contract/tests/contract_samples/broken_sink_runtime.py": "a sink that swallows errors is what the suite must find",
    "plugins/light/src/headrace_light/workers/exchange.py": "the error is logged; only its copying has failed",
    "plugins/metrics/src/headrace_metrics/opentelemetry_logs.py": "logging's own way: a handler reports with handleError",
    "plugins/spark/src/headrace_spark/checkpoints/checkpoint.py": "removes what is left of a claim, and raises the error before it",
    "plugins/spark/src/headrace_spark/checkpoints/object_stores.py": "py4j's error says that there is no such class: the answer",
    "plugins/spark/src/headrace_spark/processes/sticky_workers.py": "prints the traceback; the process ends with code 1",
    "tests/conformance/forked_cases.py": "prints the traceback as the interpreter does; the process ends with code 1",
    "tests/differential/fuzz.py": "an error is a finding and told as one; a case that its oracle refuses has no golden file",
    "tests/differential/shrinking.py": "Hypothesis raises what it has shrunk, which is told by the caller",
    "tests/fuzz/guided/minimizing.py": "runs an input that is known to fail, to see which lines it reaches",
    "tests/simulation/mutations.py": "a planted bug: a flush that swallows errors",
}

FOREIGN = {
    "core/src/headrace/flow/rows.py: item": "scalars of numpy, which is not imported for it",
    "core/src/headrace/interfaces/function_classes.py: columns": "a frame of pandas, which is not imported for it",
    "core/src/headrace/interfaces/function_classes.py: index": "a series of pandas, which is not imported for it",
    "core/src/headrace/interfaces/function_classes.py: item": "scalars of numpy, which is not imported for it",
    "core/src/headrace/interfaces/function_classes.py: open": "an object of the user, which may have it as PyFlink's do",
    "core/src/headrace/interfaces/function_classes.py: close": "an object of the user, which may have it as PyFlink's do",
    "core/src/headrace/interfaces/function_classes.py: result_type": "a class of the user",
    "core/src/headrace/interfaces/function_classes.py: _fields": "named tuples",
    "core/src/headrace/interfaces/function_results.py: __iter__": "a result of a function of the user",
    "core/src/headrace/interfaces/operator.py: keys": "the one place that asks: a class attribute would be a default of dataclasses",
    "core/src/headrace/runtime/waiting.py: how": "threading.local, empty in a new thread",
    "connectors/kafka/src/headrace_kafka/kafka_python_client.py: reason": "errors of kafka-python",
    "connectors/kafka/src/headrace_kafka/kafka_python_client.py: retriable": "errors of kafka-python",
    "contrib/jsonschema/src/headrace_jsonschema/documents.py: message": "errors of jsonschema, referencing and re",
    "contrib/remotefiles/src/headrace_remotefiles/remote_files.py: status": "errors of aiohttp, which may not be installed",
    "plugins/changes/src/headrace_changes/databases/table_sink.py: closed": "connections of several drivers",
    "plugins/columnar/src/headrace_columnar/compiler.py: value": "types of sqlglot",
    "plugins/console/src/headrace_console/catalog.py: Settings": "what plug-ins offer, of any kind: functions and texts have none",
    "plugins/rules/src/headrace_rules/scanning.py: scratch": "threading.local, empty in a new thread",
    "plugins/server/src/headrace_server/access/tls.py: reason": "errors of ssl",
    "plugins/sql/src/headrace_sql/binding/jdbc_store.py: length": "types of SQLAlchemy",
    "plugins/sql/src/headrace_sql/binding/jdbc_store.py: unsigned": "types of SQLAlchemy",
    "plugins/sql/src/headrace_sql/binding/types.py: value": "types of sqlglot",
    "plugins/sql/src/headrace_sql/compiling/over.py: name": "expressions of sqlglot",
    "plugins/sql/src/headrace_sql/compiling/script.py: name": "functions of the user, of any kind",
    "plugins/stateful/src/headrace_stateful/aggregates/process.py: process": "a function of the user, or an object with that method",
    "plugins/stateful/src/headrace_stateful/aggregates/state_bytes.py: _fields": "named tuples",
}

#: Modules that import each other, at the top or in functions.
CIRCLES = {
    "headrace.plan.explain headrace.plan.graph headrace.plan.outputs headrace.plan.state_inputs": (
        "a plan makes its definitions when they are asked for first, of the plan that it is"
    ),
    "headrace_columnar.casts headrace_columnar.functions.json headrace_columnar.registry": (
        "the registry imports the modules of functions when a name is looked up; a cast to text may need one"
    ),
    "headrace_columnar.compiler headrace_columnar.operators": "an operator's sides are compiled by what compiles operators",
    (
        "headrace_console.app headrace_console.command headrace_console.explaining headrace_console.projects "
        "headrace_console.reporting headrace_console.running headrace_console.state_showing headrace_console.watchdog"
    ): "each command is imported when it is called, and says with the app's own function how it went",
    "headrace_file.streams headrace_file.zip_stream": "a kind of stream, imported for a file of that kind",
    "headrace_kafka.producer headrace_kafka.producer_confluent headrace_kafka.producer_kafka_python": (
        "the driver that is installed and chosen is imported when a producer is made"
    ),
    "headrace_kafka.source headrace_kafka.topics": "a source gives its topics, which give a source for each of theirs",
    "headrace_rocketmq.job_topics headrace_rocketmq.source": "a source gives its topics, which give a source for each of theirs",
    (
        "headrace_logpresets.json_preset headrace_logpresets.json_presets headrace_logpresets.linux_presets "
        "headrace_logpresets.pattern_preset headrace_logpresets.presets headrace_logpresets.service_presets "
        "headrace_logpresets.times headrace_logpresets.web_presets "
        "headrace_logpresets.windows_preset headrace_logpresets.windows_presets"
    ): "the kind of a preset is imported when a preset of it is asked for",
    "headrace_remotefiles.remote_files headrace_remotefiles.schemes": "the library of a scheme is imported for a file of it",
    "headrace_rules.optimizer headrace_rules.plugin": "what a plug-in offers is imported when it is asked for",
    "headrace_rules.prepared headrace_rules.preparing": "what prepares conditions imports sqlglot, which takes a while",
}

_ASKS = "asks a server that another program runs: there is no clock to move"
_SHOWN = "the pause is what the test is about"
SLEEPING_TESTS = {
    "connectors/kafka/tests/test_instances.py": "slow: a storm of kills at random moments",
    "connectors/kafka/tests/test_reading.py": "the broker's times have milliseconds: records are to have different ones",
    "contrib/lease/tests/lease_world.py": "lets other processes have SQLite's file",
    "plugins/contract/tests/contract_samples/broken_sources.py": _SHOWN,
    "plugins/light/tests/light_savepoint_job.py": "a program of its own, which waits for its own job",
    "plugins/light/tests/memory_jobs.py": _SHOWN,
    "plugins/light/tests/test_groups.py": "a group's poll: it must take the time that it is given",
    "plugins/light/tests/test_workers.py": _SHOWN,
    "tests/differential/servers/rocketmq_reader.py": _ASKS,
    "tests/published/flink/running.py": "times of the machine's clock are in the results",
    "tests/servers/processes.py": _ASKS,
}
TIMED_TESTS = {
    "connectors/rocketmq/tests/test_sending.py": "a delay by the broker: on a busy machine it is longer, never shorter",
}
#: Tests that real time is a part of: they run for hours, or in another world whose clock is moved.
OF_REAL_TIME = ("tests/chaos/", "tests/soak/", "tests/simulation/", "tests/machine/", "benchmarks/")


def shipped() -> Mapping[str, Facts]:
    return {path: found for path, found in facts().items() if "/src/" in path}


def of_tests() -> Mapping[str, Facts]:
    return {path: found for path, found in facts().items() if "/src/" not in path}


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    assert {path: found.lines for path, found in facts().items() if found.lines > FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    found = {f"{path}: {name}" for path, each in facts().items() for name in each.long_functions}
    assert found == set(LONG_FUNCTIONS)


def test_modules_are_named_after_what_lives_there() -> None:
    parts = {path: {*path.removesuffix(".py").split("/")} for path in facts()}
    assert [path for path, names in parts.items() if names & EMPTY_NAMES] == []


def test_modules_do_not_import_each_other() -> None:
    assert {" ".join(circle) for circle in import_circles(shipped())} == set(CIRCLES)


def test_a_circle_is_found() -> None:
    texts = {
        "p/src/p/__init__.py": "from p.a import f",
        "p/src/p/a.py": "from p.b import g",
        "p/src/p/b.py": "def g():\n    from p import c\n",
        "p/src/p/c.py": "import p.a\nif TYPE_CHECKING:\n    from p.d import h\n",
        "p/src/p/d.py": "from p.c import x",
    }
    assert import_circles({path: facts_of(text) for path, text in texts.items()}) == [["p.a", "p.b", "p.c"]]


def test_no_error_vanishes() -> None:
    assert {path for path, found in facts().items() if found.vanishing} == set(SWALLOWED)


def test_own_classes_are_not_asked_whether_they_have_what_they_declare() -> None:
    """What a backend, a plan or the console asks of a plug-in is declared with a default (docs/writing-plugins.md)."""
    declared = {name for found in shipped().values() for name in found.declared}
    asked = {f"{path}: {name}" for path, found in shipped().items() for name in found.asked & declared}
    assert asked == set(FOREIGN)


def test_no_double_agrees_with_everything() -> None:
    """``Mock`` has every attribute, and every call of it is right: a test with one can hardly fail."""
    assert [f"{path}:{line}" for path, found in of_tests().items() for line in found.doubles] == []


def test_a_test_is_skipped_for_a_reason_and_never_always() -> None:
    assert [f"{path}:{line}" for path, found in of_tests().items() for line in found.skips] == []


def test_tests_do_not_wait_for_time() -> None:
    """They wait for what is to happen (``tests.eventually``), or move a clock."""
    found = {path for path, each in of_tests().items() if each.sleeps and not path.startswith(OF_REAL_TIME)}
    assert found == set(SLEEPING_TESTS)


def test_tests_assert_nothing_of_the_time_that_has_passed() -> None:
    """A busy machine takes longer. What something takes is measured by a benchmark."""
    found = {path for path, each in of_tests().items() if each.timed and not path.startswith(OF_REAL_TIME)}
    assert found == set(TIMED_TESTS)


@pytest.mark.parametrize("reasons", [LONG_FUNCTIONS, SWALLOWED, FOREIGN, CIRCLES, SLEEPING_TESTS, TIMED_TESTS])
def test_each_exception_says_why(reasons: Mapping[str, str]) -> None:
    assert all(len(reason) > 10 for reason in reasons.values())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("try:\n    f()\nexcept Exception:\n    pass", [3]),
        ("try:\n    f()\nexcept (OSError, BaseException):\n    count += 1", [3]),
        ("with suppress(Exception):\n    f()", [1]),
        ("try:\n    f()\nexcept Exception as error:\n    failures.append(error)", []),
        ("try:\n    f()\nexcept Exception:\n    logger.exception('it failed')", []),
        ("try:\n    f()\nexcept BaseException:\n    close()\n    raise", []),
        ("try:\n    f()\nexcept OSError:\n    pass", []),
    ],
)
def test_what_counts_as_vanishing(text: str, lines: list[int]) -> None:
    assert facts_of(text).vanishing == lines


def test_what_else_is_found() -> None:
    body = "\n".join(["    pass"] * 71)
    found = facts_of(
        f"def f():\n{body}\n"
        "class C:\n    a: int\n    b = 1\n    def m(self):\n        self.c = 1\n"
        "getattr(x, 'a', None), hasattr(x, 'b'), getattr(x, 'c'), getattr(x, name, None)\n"
        "mock.Mock()\npytest.mark.skip\npytest.mark.skipif(True)\ntime.sleep(1)\n"
        "assert time.monotonic() < deadline\nassert time.monotonic() - begun < 5\n"
    )
    assert found.long_functions == ["f"]
    assert found.declared == {"a", "b", "c", "m"}
    assert found.asked == {"a", "b"}
    assert len(found.doubles) == 1
    assert len(found.skips) == 2
    assert found.sleeps
    assert len(found.timed) == 1
