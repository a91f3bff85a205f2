"""Training services behind one client interface, Tinker's.

Read ``interface`` first; ``connect`` finds the service of a plan. ``hosted/`` is Tinker through
its SDK, ``engine/`` the embedded engine, ``http/`` that engine behind Tinker's protocol, and
``tiny/`` the model that is included.
"""
