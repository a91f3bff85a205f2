"""What recipes name beside themselves, read at check: ``rules`` say of what, ``rows`` compares the
rows of a file with what a stage wants of them, ``graders`` grades their own answers; ``code`` looks
at functions and classes, ``templates`` at prompts in files."""
