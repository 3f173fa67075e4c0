"""Real servers for the integration tests, run as local processes: RocketMQ, Kafka, MariaDB and Elasticsearch.

From the command line: ``python -m tests.servers`` (see README.md). From tests: the fixtures in `fixtures`.
"""
