"""Pages that follow runs while they go on: `watched` knows when one has changed, `server` answers
browsers."""
