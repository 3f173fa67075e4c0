"""Fixtures of every test in the workspace: real servers, started when a test first asks for one."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.fixtures"]

# How long an example takes says how busy the machine is.
settings.register_profile("without time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without time")
