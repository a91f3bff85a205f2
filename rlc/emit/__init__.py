"""Training jobs as standalone Python scripts."""
