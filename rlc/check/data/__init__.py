"""What recipes name beside themselves, read at check: ``rules`` say of what, ``rows`` compares the
rows of a file with what a stage wants of them, and ``graders`` grades their own answers."""
