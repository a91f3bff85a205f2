"""Training services: Tinker's client interface and what implements it.

Read ``interface`` first, which is all that the runtime knows, then ``connect``, which finds the
service of a plan. ``hosted`` is Tinker through its SDK, ``local`` the embedded engine, ``tiny`` the
model that comes with it, and ``http`` a server that puts the engine behind Tinker's protocol.
"""
