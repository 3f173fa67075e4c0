"""Jobs that nobody imagined: made from seeds, run, and compared with other programs and with themselves. See README.md."""
