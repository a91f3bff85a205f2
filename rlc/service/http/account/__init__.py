"""Who uses the server, and what they used: identity, tokens counted, events of checkpoints, traces.

The state is in ``signing``, ``usage``, ``audit`` and ``traces``; ``routes`` answers for it.
"""
