"""The catalogue: what the language knows, each thing declared once."""
