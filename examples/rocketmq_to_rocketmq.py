"""Large orders, from one topic of RocketMQ into another: each once for readers that drop repetitions.

    headrace run examples/rocketmq_to_rocketmq.py --set name_servers=localhost:9876 --backend light

reads what is there; with ``--until never --checkpoint state/`` it goes on until Ctrl-C, and several such processes (each
with a checkpoint directory of its own) share the queues of the topic. Orders of one customer stay in order. What cannot be
read (no JSON, or of a wrong type) goes to a topic of its own, with the reason.
"""

from __future__ import annotations

import headrace as hr


def job(
    name_servers: str,
    topic: str = "orders",
    target: str = "large-orders",
    bad: str = "bad-orders",
    group: str = "large-orders",
    least: float = 100.0,
) -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    orders = hr.stream("examples", "rocketmq-to-rocketmq").from_rocketmq(
        topic,
        name_servers=name_servers,
        group=group,
        format="json",
        schema={"id": "int64", "customer": "string", "region": "string", "amount": "float64"},
    )
    made: hr.Job = (
        orders.where(f"amount >= {least:f}")
        .with_columns(customer="trim(customer)", region="lower(region)")
        .dead_letters(lambda broken: broken.to_rocketmq(bad, name_servers=name_servers, create_topic=True))
        .to_rocketmq(
            target,
            name_servers=name_servers,
            key="customer",
            tag="region",
            delivery="idempotent",
            create_topic=True,
        )
    )
    return made
