import os, time
from collections import Counter
import pytest
from tests.cluster import test_dataframes as d
from tests.cluster import test_kills as k
from tests.cluster.frame_cases import FRAME_CASES
TURN = int(os.environ["TURN"]); KILLS = int(os.environ["KILLS"])

@pytest.mark.timeout(1800)
def test_frames(start_spark_cluster, tmp_path):
    b = time.time()
    runs = d.Runs(tmp_path, [case.name for case in FRAME_CASES], 1500)
    storm = k.Storm(start_spark_cluster(k.CLUSTER), runs.directory, runs.cases, runs.options, TURN, d.MODULE)
    storm.run(KILLS)
    print(f"FRAMES turn {TURN}: {dict(storm.kills)} {time.time() - b:.0f} s", flush=True)
    runs.same_as_light()
    print("SAME", flush=True)

@pytest.mark.timeout(1800)
def test_sources(start_spark_cluster, tmp_path):
    b = time.time()
    cases = k.larger_cases(2000)
    k.lay_out(tmp_path, cases)
    storm = k.Storm(start_spark_cluster(k.CLUSTER), tmp_path, cases, k.options_of(2000), seed=TURN)
    storm.run(KILLS)
    print(f"SOURCES turn {TURN}: {dict(storm.kills)} {time.time() - b:.0f} s", flush=True)
    k.same_as_light(tmp_path, cases)
    print("SAME", flush=True)
