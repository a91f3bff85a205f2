"""How Sphinx renders the site; `python -m tools.docs` puts its source together and runs it."""

from __future__ import annotations

from pathlib import Path

from rlc.version import __version__

HERE = Path(__file__).parent

project = "rlc"
release = version = __version__
project_copyright = "the authors of rlc"
html_title = "rlc"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4  # links to headings, as on GitHub
myst_links_external_new_tab = False
default_role = "literal"  # `rlc run` in a docstring
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
napoleon_use_rtype = False
suppress_warnings = ["misc.highlighting_failure"]  # examples leave parts out with …

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_static_path = [str(path) for path in (HERE / "_static",) if path.is_dir()]
html_extra_path = [str(path) for path in (HERE / "_extra",) if path.is_dir()]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": ["view"]}  # which is the page as Markdown
templates_path = [str(HERE / "_templates")]
html_use_index = html_domain_indices = False
