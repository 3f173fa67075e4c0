"""Dimension tables of headrace: rows joined to tables that are loaded once per process, shared between jobs and refreshed."""
