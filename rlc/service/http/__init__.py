"""The embedded engine behind Tinker's HTTP protocol, for the unmodified SDK (tinker 0.38).

Read ``app`` first: the paths and their handlers, which are in ``training``, ``sampling``,
``listing``, ``checkpoints.routes``, ``checkpoints.external`` and ``account.routes``. They share a
``backend``, with ``sessions``, ``checkpoints.runs`` and ``futures``, the promises of answers;
``wire`` encodes protobuf, ``server`` listens. ``faults`` simulates the delays and failures of a
hosted service; an ``extension`` adds to a server.
"""
