"""Large orders, from a topic of Kafka into a table of MySQL: each once, whatever is killed while it runs.

    headrace run examples/kafka_to_mysql.py --set servers=localhost:9092 --set user=etl --backend light

reads what is there; with ``--until never --checkpoint state/`` it goes on until Ctrl-C. The password is taken from the
environment (``MYSQL_PASSWORD``). Orders that cannot be read (no JSON, or of a wrong type) or stored are kept in a table
of their own, with the reason.
"""

from __future__ import annotations

import headrace as hr


def job(
    servers: str,
    topic: str = "orders",
    host: str = "localhost",
    port: int = 3306,
    user: str = "root",
    database: str = "shop",
    least: float = 100.0,
) -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    place = {"host": host, "port": port, "user": user, "password": "${MYSQL_PASSWORD}", "database": database}
    orders = hr.stream("examples", "kafka-to-mysql").from_kafka(
        topic,
        servers=servers,
        format="json",
        schema={"id": "int64", "customer": "string", "amount": "float64", "at": "timestamp"},
        metadata={"partition": "queue", "position": "offset"},
    )
    made: hr.Job = (
        orders.where(f"amount >= {least:f}")
        .with_columns(customer="trim(customer)")
        .dead_letters(lambda bad: bad.to_mysql("bad_orders", **place, create_table=True))
        .to_mysql("large_orders", **place, create_table=True, key=["id"], mode="upsert")
    )
    return made
