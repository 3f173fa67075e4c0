"""MySQL and MariaDB source and sink for headrace."""
