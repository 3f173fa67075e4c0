"""Makes the package of a job: one archive with the job, its modules and the Python packages that workers need."""
