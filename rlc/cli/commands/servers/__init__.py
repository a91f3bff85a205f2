"""Commands that serve other programs until they are stopped, and such as try a server."""
