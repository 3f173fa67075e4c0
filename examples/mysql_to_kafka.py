"""Customers, from a table of MySQL into a topic of Kafka: each once for readers with read_committed.

    headrace run examples/mysql_to_kafka.py --set servers=localhost:9092 --set user=etl --backend light

reads the table once, in ranges of its key. With ``--set mode=poll --until never --checkpoint state/`` it goes on with new
rows until Ctrl-C. Rows of one country go to the same partition, in the order of their keys. The password is taken from
the environment (``MYSQL_PASSWORD``).
"""

from __future__ import annotations

import headrace as hr


def job(
    servers: str,
    topic: str = "customers",
    host: str = "localhost",
    port: int = 3306,
    user: str = "root",
    database: str = "shop",
    table: str = "customers",
    mode: str = "scan",
) -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    place = {"host": host, "port": port, "user": user, "password": "${MYSQL_PASSWORD}", "database": database}
    made: hr.Job = (
        hr.stream("examples", "mysql-to-kafka")
        .from_mysql(table, **place, mode=mode, columns=["id", "name", "country"])
        .where("country IS NOT NULL")
        .with_columns(country="upper(country)")
        .to_kafka(topic, servers=servers, key="country", delivery="exactly_once", create_topic=True, partitions=4)
    )
    return made
