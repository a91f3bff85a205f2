"""Commands that run jobs, and show what has become of them."""
