"""The documentation site: `python -m tools.docs` builds it in ``build/site``.

`sources.py` puts the source together: the pages of ``docs/``, and those of `reference/`, which are
made from what the code says of itself. `build.py` runs Sphinx on it, `plain.py` adds the pages as
plain Markdown and ``llms.txt``.
"""
