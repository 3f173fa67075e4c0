"""Who visits a site, from where and with what: nginx's access log with browsers, countries and what is ours.

    headrace run examples/access_log_enriched.py --set path=/var/log/nginx/access.log --set database=GeoLite2-City.mmdb \\
        --set ours=networks.txt --set visits=visits --set others=others --backend light

reads what is there; with ``--until never --checkpoint state/`` it follows the log until Ctrl-C. ``database`` is a file in MaxMind's format,
``ours`` a file with networks, one a line. Lines that are no requests go to ``others`` with the reason.
"""

from __future__ import annotations

import headrace as hr


def job(path: str, database: str, ours: str, visits: str = "visits", others: str = "others") -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    requests = hr.stream("examples", "access-log").from_file(path, format="nginx-access")
    made: hr.Job = (
        requests.with_columns(
            place=f"geoip(clientip, {text(database)})",
            program="parse_user_agent(agent)",
            ours=f"ip_in_network_file(clientip, {text(ours)})",
            shop="parse_url('http://site' || request, 'QUERY', 'shop')",
        )
        .select(
            "timestamp", "clientip", "place.country_code AS country", "place.city AS city", "program.browser AS browser",
            "program.os AS os", "ours", "shop", "response",
        )
        .dead_letters(lambda bad: bad.select("reason").to_file(others, format="json"))
        .to_file(visits, format="json")
    )  # fmt: skip
    return made


def text(value: str) -> str:
    """Return a text as an expression writes it."""
    return "'" + value.replace("'", "''") + "'"
