"""The stages of a job, one module for each kind."""
