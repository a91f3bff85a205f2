"""Properties draw the same examples in every run, however slow the machine."""

from hypothesis import settings

settings.register_profile("rlc", derandomize=True, deadline=None)
settings.load_profile("rlc")
