"""Data that recipes name: the rows of files, graders of answers, functions of the user's own.

This room knows nothing of environments or models, so that `rlc check` reads data as a run does.
``rows`` reads files, of which ``splits`` takes parts; ``sets`` are sets of problems known by name,
and those in files; ``graders`` compare answers, ``math_equivalence`` by their meaning, in the
processes of ``subprocess_pool``; ``countdown`` makes the problems of that game and checks its
expressions; ``code`` is what a recipe names in Python, and ``templates`` are prompts in files. All
raise ``errors.DataError``.
"""
