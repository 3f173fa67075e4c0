"""Rules of the house that no linter knows: sizes, names, caught errors, doubles, waiting."""
