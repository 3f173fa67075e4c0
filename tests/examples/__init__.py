"""The jobs in ``examples/``, run as their users run them, against real servers."""
