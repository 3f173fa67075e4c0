"""Keyed state: tables from keys to slots, logs of rows, their bytes in checkpoints, the share of a shard, timers, watermarks.

The room below all others of this package.
"""
