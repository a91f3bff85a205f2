"""rlc: a compiler for reinforcement-learning post-training recipes."""

__version__ = "0.1.0"
