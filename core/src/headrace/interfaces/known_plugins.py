"""What the packages of headrace offer, for hints of what to install. Written by ``python -m tests.packaging.known_plugins``."""

from __future__ import annotations

from collections.abc import Mapping

#: The distribution of each plug-in, by the name of its entry point.
PLUGINS: Mapping[str, str] = {
    "columnar": "headrace-columnar",
    "dimension": "headrace-dimension",
    "elasticsearch": "headrace-elasticsearch",
    "file": "headrace-file",
    "kafka": "headrace-kafka",
    "light": "headrace-light",
    "metrics": "headrace-metrics",
    "mysql": "headrace-mysql",
    "print": "headrace-print",
    "rocketmq": "headrace-rocketmq",
    "rocksdb": "headrace-rocksdb",
    "rules": "headrace-rules",
    "spark": "headrace-spark",
    "sql": "headrace-sql",
    "stateful": "headrace-stateful",
}
#: The distribution that offers a name, by kind.
OFFERS: Mapping[str, Mapping[str, str]] = {
    "source": {
        "dataframe": "headrace-spark",
        "datagen": "headrace-sql",
        "elasticsearch": "headrace-elasticsearch",
        "file": "headrace-file",
        "frame": "headrace-sql",
        "kafka": "headrace-kafka",
        "mysql": "headrace-mysql",
        "parquet": "headrace-dimension",
        "rocketmq": "headrace-rocketmq",
    },
    "sink": {
        "blackhole": "headrace-sql",
        "collect": "headrace-sql",
        "elasticsearch": "headrace-elasticsearch",
        "file": "headrace-file",
        "kafka": "headrace-kafka",
        "mysql": "headrace-mysql",
        "print": "headrace-print",
        "rocketmq": "headrace-rocketmq",
    },
    "operator": {
        "aggregate": "headrace-stateful",
        "deduplicate": "headrace-stateful",
        "distinct": "headrace-stateful",
        "drop": "headrace-columnar",
        "filter": "headrace-columnar",
        "flat_map": "headrace-columnar",
        "for_each": "headrace-columnar",
        "join": "headrace-stateful",
        "lookup_join": "headrace-dimension",
        "map": "headrace-columnar",
        "map_batches": "headrace-columnar",
        "normalize_changes": "headrace-stateful",
        "process": "headrace-stateful",
        "reduce": "headrace-stateful",
        "rename": "headrace-columnar",
        "rules": "headrace-rules",
        "script": "headrace-columnar",
        "select": "headrace-columnar",
        "split": "headrace-columnar",
        "top_n": "headrace-stateful",
        "watermark": "headrace-stateful",
        "where": "headrace-columnar",
        "window_aggregate": "headrace-stateful",
        "window_reduce": "headrace-stateful",
        "with_columns": "headrace-columnar",
    },
    "state store": {
        "directory": "headrace-light",
        "mysql": "headrace-mysql",
        "rocksdb": "headrace-rocksdb",
    },
    "backend": {
        "light": "headrace-light",
        "spark": "headrace-spark",
    },
    "language": {
        "sql": "headrace-sql",
    },
    "connector": {
        "console": "headrace-print",
        "db": "headrace-mysql",
        "elasticsearch-7": "headrace-elasticsearch",
        "elasticsearch-8": "headrace-elasticsearch",
        "es": "headrace-elasticsearch",
        "filesystem": "headrace-file",
        "jdbc": "headrace-mysql",
        "metaq": "headrace-rocketmq",
        "mysql-cdc": "headrace-mysql",
        "rds": "headrace-mysql",
        "upsert-kafka": "headrace-kafka",
    },
    "metric": {
        "rule.hits": "headrace-rules",
    },
    "metrics exporter": {
        "otlp": "headrace-metrics",
        "otlps": "headrace-metrics",
        "prometheus": "headrace-metrics",
    },
}
