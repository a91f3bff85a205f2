"""Problems with answers to check: ``problems(gsm8k, grader = numeric)``.

Read ``source`` first: one question, one reply, one reward. ``data_sets`` are sets known by name and
``rows`` those in files; ``graders`` compare answers, ``math_equivalence`` by their meaning;
``countdown`` makes the problems of that game and checks its expressions.
"""
