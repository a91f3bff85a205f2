"""The embedded engine behind Tinker's HTTP protocol, for the unmodified SDK (tinker 0.38)."""
