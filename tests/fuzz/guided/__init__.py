"""Coverage-guided fuzzing: what the outside may send, bytes by bytes, against the code that reads it.

``targets.py`` names what is fuzzed. ``run.py`` lets libFuzzer (by atheris) look for bytes that reach new code, beginning from the corpus,
and keeps what it finds. ``corpus/`` holds for each target the bytes that are worth trying, one base64 text a line. ``test_corpus.py`` tries
them all on every change, so whatever made a target fail once stays a test.
"""
