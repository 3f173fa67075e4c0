"""The process that runs jobs: ``python -m headrace_server.runner SPECIFICATION``. It outlives the server that started it."""
