"""What `rlc report` writes: pages of HTML, each with everything in it."""
