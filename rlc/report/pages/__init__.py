"""What `rlc report` writes and `rlc watch` serves: pages of HTML, each with everything in it."""
