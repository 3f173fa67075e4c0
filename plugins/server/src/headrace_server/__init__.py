"""Runs jobs for months: a registry, access for people and programs, schedules."""

from __future__ import annotations

__version__ = "0.1.0"
