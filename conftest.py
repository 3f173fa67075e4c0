"""Fixtures of every test in the workspace: real servers, started when a test first asks for one."""

pytest_plugins = ["tests.servers.fixtures"]
