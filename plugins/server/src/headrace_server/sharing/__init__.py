"""Several servers on one registry: which live, which has which unit, and how one asks another."""
