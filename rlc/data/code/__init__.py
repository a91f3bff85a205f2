"""Python code that recipes name: how it is called (``calls``), read without being run (``written``,
``modules``), or imported (``functions``)."""
