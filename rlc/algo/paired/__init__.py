"""Decisions from a few paired numbers: Student's t, looks at growing samples, several at once."""
