"""Conformance: each case is a job and its input, run on every backend, clean, re-batched and crashed. Outputs are equal."""
