"""Tinker through its official SDK: the hosted service, or any server that speaks its API.

Read ``service`` first: one session with its ``clients``, whose answers are awaited in ``replies``.
``endpoint`` finds the address and the key, ``preflight`` and ``capabilities`` check a server before
a run, ``refusals`` and ``notices`` put the SDK's errors and log messages into plain words.
"""
