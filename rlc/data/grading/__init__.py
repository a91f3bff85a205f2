"""Graders, which compare answers, and rewards, which add them up with own functions."""
