"""Agents in training: each episode of one has an endpoint of its own, which the policy answers.

Read ``conversations`` (prompts by the very tokens that were sampled), ``requests`` (what one
episode asks, and the turns that it becomes), ``endpoint`` (their addresses) and ``play``.
"""
