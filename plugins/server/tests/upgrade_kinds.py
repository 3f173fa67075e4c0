"""What is upgraded under load: the code of a job, a SQL text, a plug-in, a set of rules, headrace itself. Kafka to MySQL in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.foundation.errors import HeadraceError
from server_processes import ServerProcess, make_environment
from test_plugins_of_jobs import make_wheel

#: Without a key in the table: a row that is written twice is there twice.
PYTHON = """
import headrace as hr
place = {place!r} | {{"password": "${{MYSQL_PASSWORD}}"}}
job = (hr.stream("shop", "upgrades")
       .from_kafka({topic!r}, servers={servers!r}, format="json", schema={{"n": "int64"}})
       {verbs}
       .select("n")
       .to_mysql("numbers", **place, create_table=True))
"""
SQL = """
CREATE TABLE incoming (n BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'
);
CREATE TABLE numbers (n BIGINT) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://{host}:{port}/{database}', 'table-name' = 'numbers', 'username' = '{user}',
  'password' = '${{MYSQL_PASSWORD}}', 'create-table' = 'true'
);
INSERT INTO numbers SELECT n FROM incoming WHERE n >= -{number};
"""
PLUGIN = """
import headrace as hr

@hr.udf(returns="int64", name="acme_version")
def acme_version() -> int:
    return 1 + int({version!r}.split(".")[1])

@hr.hookimpl
def headrace_functions():
    return {{"acme_version": acme_version}}
"""
RULES = '.rules([{"id": "even", "expression": "n % 2 = 0"}], output="tag")'


class Upgrade:
    """Code of a job. ``change`` makes the next version; ``is_done`` says whether it runs, and rolls out again what a kill took back."""

    def __init__(self, server: ServerProcess, place: Mapping[str, Any], topic: str, servers: str) -> None:
        self.server = server
        self.place, self.topic, self.servers = place, topic, servers
        settings = {
            "secrets": ["MYSQL_PASSWORD"],
            "health_window": "200 ms",
            "options": {"checkpoint_interval": "500 ms"},
        }
        self.settings: dict[str, Any] = settings

    def prepare(self) -> None:
        """Write the first version, before the server is started."""
        self.change(0)

    def change(self, number: int) -> None:
        self.write(f'.where("n >= -{number}")' + RULES)

    def write(self, verbs: str) -> None:
        text = PYTHON.format(place=dict(self.place), topic=self.topic, servers=self.servers, verbs=verbs)
        (self.server.jobs / "job.yaml").write_text(json.dumps(self.settings))
        (self.server.jobs / "numbers.py").write_text(text)

    def found(self) -> dict[str, Any]:
        return self.server.job("numbers")

    def is_done(self, number: int) -> bool:
        found = self.found()
        if found["job"]["version"] == number + 1 and found["job"]["state"] == "running":
            return True
        newest = found["versions"][0]
        if newest["number"] == number + 1 and newest["state"] == "fell_back" and found["job"]["state"] == "running":
            self.server.client.ask("POST", "/v1/jobs/numbers/upgrade", {})
        return False

    def replace_server(self) -> None:
        """Kill the server and start it again."""
        self.server.kill()
        self.server.start("--on-stop", "leave")


class SQLUpgrade(Upgrade):
    """A SQL text."""

    def change(self, number: int) -> None:
        text = SQL.format(topic=self.topic, servers=self.servers, number=number, **self.place)
        (self.server.jobs / "job.yaml").write_text(json.dumps(self.settings))
        (self.server.jobs / "numbers.sql").write_text(text)


class PluginUpgrade(Upgrade):
    """A plug-in: another wheel in ``ext/`` and another name in ``job.yaml``, while the job's file stays."""

    def change(self, number: int) -> None:
        wheel = make_wheel(self.server.root / "ext", f"1.{number}", text=PLUGIN)
        self.settings |= {"plugins": [wheel]}
        self.write('.where("acme_version() > 0")')


class RulesUpgrade(Upgrade):
    """A set of rules, which is replaced while the job runs: the version of the job stays."""

    def prepare(self) -> None:
        self.write(RULES)

    def change(self, number: int) -> None:
        self._wanted = f"- {{id: r{number}, expression: n % 3 = 0}}\n"
        self._put = False
        self._try()

    def _try(self) -> None:
        try:
            self.server.client.ask("PUT", "/v1/jobs/numbers/rules", {"text": self._wanted})
        except HeadraceError:
            return  # no process runs now
        self._put = True

    def is_done(self, number: int) -> bool:
        if not self._put:
            self._try()
        return self._put and bool(self.found()["job"]["state"] == "running")


class HeadraceUpgrade(Upgrade):
    """headrace itself: a server of another environment takes the job over and moves it there. Two environments in turn."""

    def prepare(self) -> None:
        self.write(RULES)
        self._pythons = [self.server.python, make_environment(self.server.root / "other")]
        self._number = 0

    def change(self, number: int) -> None:
        self._number = number
        self.server.python = self._pythons[number % 2]
        if number % 4 < 2:
            self.server.kill()
        else:
            assert self.server.stop() == 0
        self.server.start("--on-stop", "leave")
        self._upgrade()

    def _upgrade(self) -> None:
        try:
            self.server.client.ask("POST", "/v1/jobs/numbers/upgrade", {})
        except HeadraceError:
            return  # it does not run now, or was moved by a restart

    def is_done(self, number: int) -> bool:
        job = self.found()["job"]
        if job["state"] != "running" or job["pid"] is None:
            return False
        if not job["has_earlier_headrace"]:
            return True
        if not any(each["state"] == "running" for each in self.server.client.ask("GET", "/v1/operations")):
            self._upgrade()  # it fell back because of a kill
        return False


KINDS: Mapping[str, type[Upgrade]] = {
    "python": Upgrade, "sql": SQLUpgrade, "plug-in": PluginUpgrade, "rules": RulesUpgrade, "headrace": HeadraceUpgrade,
}  # fmt: skip
