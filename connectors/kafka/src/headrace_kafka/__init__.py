"""Kafka source and sink for headrace."""
