"""Programs that others publish with their expected rows, run by headrace: texts are read from a checkout, none are kept here."""
