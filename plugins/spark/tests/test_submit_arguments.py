"""Arguments of spark-submit: which are taken, and where the others belong. That they arrive is seen by a server's job on a cluster."""

from __future__ import annotations

import pytest
from headrace.foundation.errors import OptionError
from headrace_spark.processes.settings import SparkSettings


@pytest.mark.parametrize(
    "arguments",
    [(), ("--queue", "etl"), ("--packages=a:b:1", "--verbose"), ("--deploy-mode", "client"), ("--deploy-mode=client",)],
)
def test_what_has_no_option_here_is_taken(arguments: tuple[str, ...]) -> None:
    SparkSettings(submit_arguments=arguments).validate()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--queue", "etl", "--master", "yarn"), "set master instead"),
        (("--conf=spark.executor.memory=2g",), "set conf instead"),
        (("--archives", "job.tar.gz"), "set archive instead"),
        (("--driver-memory", "2g"), "set memory instead"),
        (("--name", "x"), "spark.app.name"),
        (("--deploy-mode", "cluster"), "start the job's file with spark-submit"),
        (("--deploy-mode=cluster",), "start the job's file with spark-submit"),
        (("--deploy-mode",), "start the job's file with spark-submit"),
        (("job.py",), "--properties-file"),
    ],
)
def test_what_would_have_no_effect_is_refused(arguments: tuple[str, ...], hint: str) -> None:
    with pytest.raises(OptionError) as refused:
        SparkSettings(submit_arguments=arguments).validate()
    assert refused.value.option == "submit_arguments"
    assert hint in str(refused.value)


def test_the_limit_of_memory_for_state_is_refused_with_the_reason() -> None:
    with pytest.raises(OptionError, match="Spark's Python workers") as caught:
        SparkSettings.of({"state_memory": "1 GB"}, plugin="spark")
    assert caught.value.option == "state_memory"
