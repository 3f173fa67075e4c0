"""The site of docs/: what MkDocs needs beside mkdocs.yml. ``python -m website.build`` builds it."""
