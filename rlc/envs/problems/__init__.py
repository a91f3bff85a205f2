"""Problems with answers to check: ``problems(gsm8k, grader = numeric)``.

``source`` is one question, one reply, one reward. Sets of problems, their splits and the graders of
answers are in :mod:`rlc.data`.
"""
