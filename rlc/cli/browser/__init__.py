"""The browser of runs and their episodes that `rlc show --browse` opens, in Textual.

What is read, filtered, compared and said is in functions without widgets; the screens show it.
"""
