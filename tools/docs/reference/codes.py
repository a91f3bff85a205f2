"""The pages of the codes of findings, by topic."""

from __future__ import annotations

from rlc.lang.codes import TOPICS, code_titles
from rlc.lang.pages import CodePage
from rlc.lang.pages import page as page_of
from tools.docs.markdown import escaped, fenced, page, table

FOLDER = "reference/codes"


def code_pages() -> dict[str, str]:
    """Return a page for each topic, and one that lists all codes."""
    texts = {
        f"{FOLDER}/{topic}xx.md": page(
            f"# {topic}xx: {about}",
            *(
                part
                for code in sorted(code_titles())
                if code.startswith(topic)
                for part in _part(code)
            ),
        )
        for topic, about in TOPICS.items()
    }
    return {f"{FOLDER}/index.md": _index(), **texts}


def _index() -> str:
    rows = [
        (f"[{code}]({code[:4]}xx.md#{code.lower()})", escaped(title))
        for code, title in sorted(code_titles().items())
    ]
    return page(
        "# Findings",
        "What `rlc check` reports, by code. `rlc explain RL0204` shows the same in the terminal.",
        table(("code", "what it says"), rows),
    )


def _part(code: str) -> list[str]:
    found = page_of(code)
    assert found is not None
    return [
        f"## {code}",
        f"**{escaped(found.title[:1].upper() + found.title[1:])}.** {found.meaning}",
        found.why,
        *_examples(found),
    ]


def _examples(found: CodePage) -> list[str]:
    sides = (("Wrong", found.wrong), ("Right", found.right))
    return [f"{said}:\n\n{fenced(example.text, example.language)}" for said, example in sides]
