"""Coverage-guided fuzzing: ``python -m tests.fuzz pattern`` and ``python -m tests.fuzz session``.

Both need the package ``atheris``, which the tests do not; a trial is a function of bytes, and runs without it.
"""
