"""Deterministic simulation: jobs in a world whose time, threads, disks and servers are simulated, decided by one seed."""
