"""Links of pages are rewritten where they are links, and lead where they led."""

from __future__ import annotations

import pytest

from tools.docs.markdown import GITHUB, escaped, links, summary_of, with_links
from tools.docs.sources import site_path, target_of

PAGE = """\
# A page

It has [one](a.md), [`code` in one](b.md#part) and [two](c.md) on a line. And `[none](x.md)`.

```md
[none](y.md)
```

````md
```
[none](z.md)
```
````

[last](d.md)
"""


def test_links_are_those_that_are_shown() -> None:
    assert links(PAGE) == ["a.md", "b.md#part", "c.md", "d.md"]
    assert links(with_links(PAGE, lambda to: f"in/{to}")) == [f"in/{to}" for to in links(PAGE)]
    assert with_links(PAGE, lambda to: to) == PAGE
    assert summary_of(PAGE) == "It has one, `code` in one and two on a line"


@pytest.mark.parametrize(
    ("link", "at", "leads"),
    [
        ("data.md#rows", "docs/rewards.md", "data.md#rows"),
        ("../data.md", "docs/tutorial/02-own-reward.md", "../data.md"),
        ("../README.md", "docs/decisions/README.md", "../guides.md"),
        ("decisions/README.md", "docs/README.md", "decisions/index.md"),
        ("decisions", "docs/README.md", "decisions/index.md"),
        ("../README.md", "docs/data.md", f"{GITHUB}README.md"),
        ("../recipes/sudoku.rl", "docs/data.md", f"{GITHUB}recipes/sudoku.rl"),
        ("docs/data.md", "CHANGELOG.md", "data.md"),
        ("../CHANGELOG.md", "docs/data.md", "changelog.md"),
        ("https://arxiv.org/abs/2402.03300", "docs/data.md", "https://arxiv.org/abs/2402.03300"),
        ("#rows", "docs/data.md", "#rows"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_to_a_file(link: str, at: str, leads: str) -> None:
    assert target_of(link, at) == leads


def test_a_readme_is_the_page_of_its_folder() -> None:
    assert site_path("docs/README.md") == "guides.md"
    assert site_path("docs/tutorial/README.md") == "tutorial/index.md"
    assert site_path("docs/tutorial/01-first-run.md") == "tutorial/01-first-run.md"


def test_plain_text_stays_plain_and_code_stays_code() -> None:
    assert escaped("a_b * `c_d` <e>") == r"a\_b \* `c_d` \<e\>"
