"""What runs in Spark's Python workers: lanes, keyed stages and outlets, and the data sources that Spark calls."""
