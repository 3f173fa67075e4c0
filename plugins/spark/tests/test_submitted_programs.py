"""Programs that spark-submit starts: the session that the options of a job have made serves the same options again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from headrace.foundation.errors import OptionError
from headrace_spark.processes import session
from headrace_spark.processes.settings import SparkSettings
from pyspark import SparkContext

PROGRAM = Path(__file__).with_name("submitted_program.py")


def test_the_same_options_are_taken_again_and_others_refused() -> None:
    running, made = object(), SparkSettings(master="spark://one:7077")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkContext, "_active_spark_context", running)
        patch.setattr(session, "_own", None)
        patch.setattr(session, "SparkSession", lambda context: context)
        patch.setattr(session, "_in_use", lambda found, own: found)
        patch.setattr(session, "_of_submit", (running, session._key(made)))
        assert session.session_for(made) is running
        assert session.session_for(SparkSettings()) is running
        with pytest.raises(OptionError, match="already has a Spark session"):
            session.session_for(SparkSettings(master="spark://other:7077"))
        patch.setattr(session, "_of_submit", (object(), session._key(made)))  # another one, which was stopped
        with pytest.raises(OptionError, match="already has a Spark session"):
            session.session_for(made)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_program_runs_a_job_with_options_twice(tmp_path: Path) -> None:
    (tmp_path / "numbers.json").write_text('{"n":1}\n{"n":2}\n{"n":3}\n', encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}
    environment["PYSPARK_PYTHON"] = sys.executable
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--driver-memory", "512m", str(PROGRAM), str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.splitlines() == ["2 2", "refused: master"]
