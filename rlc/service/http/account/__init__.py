"""Who uses the server: identities and signed addresses, and traces of what sessions did.

The state is in ``signing`` and ``traces``; ``routes`` answers for it.
"""
