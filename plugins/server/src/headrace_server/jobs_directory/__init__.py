"""What lies in ``jobs/``: the files of jobs, their settings, and the versions that are made of them."""
