"""The demo job: which commands on our hosts look like an attack?

headrace run demo/suspicious_commands.py            # on Spark, local[*]
headrace run demo/suspicious_commands.py --backend light
headrace explain demo/suspicious_commands.py
"""

import os

import headrace as hr

PLACE = os.environ.get("HEADRACE_DEMO", "demo-output")

job = (
    hr.stream("security", "suspicious-commands")
    .from_file(
        f"{PLACE}/events/*.ndjson",
        format="json",
        schema={"host": "string", "user": "string", "cmdline": "string", "ts": "timestamp"},
    )
    .where("""
        lower(cmdline) LIKE '%curl%|%sh' OR lower(cmdline) LIKE '%curl%/tmp/.%' OR cmdline LIKE '%/dev/tcp/%'
        OR cmdline LIKE '%.ssh/id_rsa%' OR cmdline LIKE '%/etc/shadow%' OR cmdline LIKE '%wget%| sh%'
        OR cmdline LIKE '%socket%connect%'
    """)
    .where("user <> 'root'")
    .select(
        "host",
        "user",
        "ts",
        "cmdline",
        kind="""CASE WHEN cmdline LIKE '%/dev/tcp/%' OR cmdline LIKE '%socket%' THEN 'reverse shell'
                     WHEN cmdline LIKE '%/etc/shadow%' THEN 'credential theft'
                     WHEN cmdline LIKE '%id_rsa%' THEN 'exfiltration'
                     ELSE 'download' END""",
    )
    .map(lambda row: {**row, "length": len(row["cmdline"])})
    .dead_letters(lambda bad: bad.to_file(f"{PLACE}/dead-letters", format="json", name="bad_lines"))
    .to_file(f"{PLACE}/alerts", format="json")
)
