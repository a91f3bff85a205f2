"""Training services behind one client interface, Tinker's.

Read ``interface`` first. ``hosted/`` is Tinker through its SDK, and finds the service of a plan;
``engine/`` the embedded engine, ``http/`` that engine behind Tinker's protocol, and ``tiny/`` the
model that is included.
"""
