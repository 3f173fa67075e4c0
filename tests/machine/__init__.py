"""A machine of its own for tests that need another kernel or systemd as process 1: see README.md."""
