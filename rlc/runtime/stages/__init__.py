"""The stages of a job, and the data that they learn from."""
