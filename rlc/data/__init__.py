"""Data that recipes name: the rows of files, chats, graders, functions of the user's own.

This room knows nothing of environments or models, so that `rlc check` reads data as a run does.
``rows`` reads files, of which ``splits`` takes parts; ``sets`` are sets of problems known by name,
and those in files. ``chats`` are made of ``messages``; ``about`` keeps what a row is known by.
``grading`` compares answers and rewards replies; ``code`` is what a recipe names in Python, and
``templates`` are prompts in files. All raise ``errors.DataError``.
"""
