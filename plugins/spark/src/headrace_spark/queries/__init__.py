"""The driver's side of a run: a job becomes a query of Spark, which is followed, stopped, and counted.

There are queries into sinks, queries over DataFrames, and jobs that become a DataFrame for a query of the user.
"""
