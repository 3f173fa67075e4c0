"""Pipelines in YAML as jobs of a real server, beside the settings, which are YAML too."""

from __future__ import annotations

from server_processes import ServerProcess

from tests.eventually import eventually

PIPELINE = """
name: copy
sources:
  events: {{connector: file, path: "{events}", format: json, schema: {{n: int64}}}}
steps:
  - rules: {{file: "${{HERE}}/rules.yaml", output: tag}}
  - where: n >= ${{LEAST}}
  - select: [n]
sinks:
  all: {{connector: file, path: "{out}", format: json}}
"""


def test_a_pipeline_runs_and_another_version_of_it_goes_on(server: ServerProcess) -> None:
    file = server.jobs / "copy.yaml"
    (server.jobs / "job.yaml").write_text(
        "health_window: 300 ms\noptions: {checkpoint_interval: 500 ms}\nvariables: {LEAST: 0}\n"
    )
    (server.jobs / "rules.yaml").write_text("- {id: some, expression: n > 1}\n")
    file.write_text(PIPELINE.format(events=server.events, out=server.out))
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.wait_for_rows(100)
    file.write_text(file.read_text().replace("n >=", "m >="))
    eventually(lambda: server.job()["job"]["problem"], "version 2 is refused", shown=server.log)
    assert "copy.yaml, line 7, column 12: unknown column 'm'" in server.job()["job"]["problem"]
    done = server.command("submit", str(file))
    assert done.returncode == 0, done.stderr
    file.write_text(file.read_text().replace("m >=", "n + 0 >="))
    server.wait_for_state("running", version=3)
    server.add_events(100, 200)
    server.wait_for_rows(200)
    assert [job["name"] for job in server.client.ask("GET", "/v1/jobs")] == ["copy"]
    assert server.stop() == 0
