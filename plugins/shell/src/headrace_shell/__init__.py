"""``headrace sql``: a shell for SQL texts, with completion, changing views and files of results.

``splitting`` finds the statements of what is typed; ``execution`` runs a text and gives its results; ``views`` keeps the rows of a
running SELECT; ``showing`` prints results or writes them to files; ``completion`` offers names; ``shell`` takes lines and the
commands that begin with a backslash; ``terminal`` is the loop on a terminal.
"""
