"""Tinker through its official SDK: the hosted service, or any server that speaks its API.

Read ``service`` first: one session with its ``clients``. ``connect`` finds the service of a plan,
which may be the embedded engine, ``endpoint`` the address and the key; ``refusals`` puts the SDK's
errors and log messages into plain words.
"""
