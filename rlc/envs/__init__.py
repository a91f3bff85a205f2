"""Environments made playable.

Read ``base`` first: what the runtime asks of an environment, and the blocking interfaces that are
simpler to write. ``build`` makes one of a plan, or finds what is wrong with it before a run.
Each system has a package: ``gem``, ``openreward``, ``cookbook``,
``problems``, ``judges``, ``python``; ``workers`` keeps blocking calls off the event loop.
"""
