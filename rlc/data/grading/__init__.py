"""How replies are graded: ``graders`` compare answers, ``rewards`` adds them up with functions of
the user's own. ``math_equivalence`` compares answers by their meaning, in the processes of
``subprocess_pool``.
"""
