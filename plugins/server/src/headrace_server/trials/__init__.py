"""Short runs beside the jobs, each in a child process with limits: lint and sample of a SQL text, a rule explained, dead letters replayed.

``process.py`` is the server's side; the other modules run in the child. The server itself never loads the code of a job.
"""
