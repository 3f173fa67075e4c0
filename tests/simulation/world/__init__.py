"""The simulated world: time, threads, processes, locks, files. It knows nothing of jobs."""
