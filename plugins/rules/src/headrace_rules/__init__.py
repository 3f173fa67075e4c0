"""Thousands of rules over one stream: one scan finds the texts of all rules, and a rule is evaluated only where its text was found."""
