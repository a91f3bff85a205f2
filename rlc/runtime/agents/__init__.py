"""Agents in training: each episode of one has an endpoint of its own, which the policy answers.

Read ``episode`` (requests that become the turns of an episode), ``endpoint`` (their addresses) and
``play``.
"""
