"""Settings of this package's tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing on a machine that also runs brokers.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
