"""The playground in a real browser, with Pyodide from npm: both where they are there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import no_network

pytest.importorskip("websockets")

from browser import BROWSER, Page, browser, served

from tools.playground import __main__ as playground

pytestmark = [pytest.mark.server, pytest.mark.slow]
WRONG = """model policy { base = "tiny" }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model = policy
  env = guess
  batch = groups(4, group_size = 4)
  sampling = sample(max_tokens = 16)
  advantage = grpo()
  loss = importance_sampling()
  optimizer = adam(1e-4)
  stps: 3
}
"""
READY = "!document.querySelector('#panel').hasAttribute('aria-busy')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if BROWSER is None:
        pytest.skip("there is no Chromium on the path, and RLC_BROWSER names none")
    if shutil.which("npm") is None:
        pytest.skip("npm is not there")
    out = tmp_path_factory.mktemp("playground")
    try:
        playground.build(out, "pyodide/")
        playground.fetch_pyodide(out / "pyodide")
    except subprocess.CalledProcessError as error:
        if no_network(error.stderr):
            pytest.skip("npm reaches no registry")
        raise
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as address:
        yield f"{address}/index.html"


@pytest.fixture(scope="module")
def page(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page after its first check: Python has started."""
    with browser(tmp_path_factory.mktemp("browser")) as page:
        page.resize(1440, 900)
        page.open(address)
        page.until(f"document.querySelector('#status')?.textContent === 'no findings' && {READY}")
        yield page
        assert page.console == []
        outside = [asked for asked in page.asked if not asked.startswith(address[:-10])]
        assert not [asked for asked in outside if not asked.startswith(("data:", "about:"))]


def write(page: Page, text: str) -> str:
    """Replace the recipe as a person would, and return what is said of it."""
    page.evaluate("document.querySelector('textarea').focus()")
    page.evaluate("document.querySelector('textarea').select()")
    page.type(text)
    return said(page)


def said(page: Page) -> str:
    page.until(READY)
    return str(page.evaluate("document.querySelector('#status').textContent"))


def panel(page: Page) -> str:
    page.until(READY)
    return str(page.evaluate("document.querySelector('#panel').innerText"))


def press(page: Page, button: str) -> None:
    """Press the button that begins like this, as soon as it is there."""
    chosen = (
        f"[...document.querySelectorAll('button')].find((b) => b.innerText.startsWith('{button}'))"
    )
    page.until(f"{READY} && {chosen}")
    page.evaluate(f"{chosen}.click()")


def text(page: Page) -> str:
    return str(page.evaluate("document.querySelector('textarea').value"))


def test_a_wrong_recipe_is_corrected_and_explained(page: Page) -> None:
    assert write(page, WRONG) == "2 errors"
    assert "a train stage has no field stps" in panel(page)
    assert "11 |   stps: 3" in panel(page)
    marks = "[...document.querySelectorAll('mark')].map((mark) => mark.textContent)"
    assert page.until(f"{marks}.length && {marks}") == ["stps", ":"]

    press(page, "What RL0104 means")
    assert page.until("document.querySelector('.page:not([hidden])')?.innerText").startswith(
        "RL0104"
    )
    press(page, "Go to line 11")
    caret = "(({selectionStart: a, selectionEnd: b, value}) => value.slice(a, b))"
    assert page.evaluate(f"{caret}(document.querySelector('textarea'))") == "stps"

    press(page, "Explain")
    assert panel(page) == "The recipe has errors: see Check"
    press(page, "see Check")
    page.until(READY)
    press(page, "Fix: write steps")
    assert said(page) == "1 error"
    page.evaluate("document.execCommand('undo')")
    assert text(page) == WRONG
    assert said(page) == "2 errors"
    press(page, "Apply the 2 clear corrections")
    page.until("document.querySelector('textarea').value.includes('steps = 3')")
    assert said(page) == "no findings"
    assert text(page) == WRONG.replace("stps:", "steps =")

    press(page, "Explain")
    assert "3 steps, each 4 groups of 4: 16 rollouts" in panel(page)
    press(page, "In full")
    assert "stage main: 3 steps on local" in panel(page)
    press(page, "Plan")
    assert '"plan_hash": "' in panel(page)
    press(page, "Formatted")
    press(page, "Put it into the editor")
    page.until("document.querySelector('textarea').value.includes('steps     = 3')")
    assert "laid out like this already" in panel(page)
    press(page, "Check")


def test_tabs_go_by_the_keyboard_and_a_new_line_is_indented(page: Page) -> None:
    page.evaluate("document.getElementById('check').focus()")
    page.press("ArrowRight", 39)
    assert page.evaluate("document.activeElement.id") == "summary"
    page.press("ArrowLeft", 37)
    page.press("ArrowLeft", 37)
    assert page.evaluate("document.activeElement.id") == "formatted"
    page.press("ArrowRight", 39)
    write(page, "train main {")
    page.press("Enter", 13)
    page.type("x = 1")
    page.press("Enter", 13)
    assert text(page) == "train main {\n  x = 1\n  "


def test_what_the_page_cannot_read_is_said(page: Page) -> None:
    recipe = (playground.ROOT / "recipes" / "preferences.rl").read_text("utf-8")
    assert write(page, recipe) == "no findings; not read here: data/spell_pairs.jsonl"


def test_a_link_holds_the_recipe(page: Page, address: str) -> None:
    recipe = '# é😀 <b>&amp;</b>\nmodel m { base = "tiny" }\n'
    write(page, recipe)
    press(page, "Copy link")
    link = page.until("location.hash.startsWith('#code=') && location.href")
    write(page, "")
    page.evaluate("location.hash = ''")
    page.evaluate(f"location.hash = {link.partition('#')[2]!r}")
    page.until("document.querySelector('.colors').textContent.startsWith('# é')")
    assert text(page) == recipe
    assert page.evaluate("document.querySelector('.colors').textContent") == f"{recipe}\n"
    write(page, f"{recipe}# hf_{'aB3' * 12}\n")
    assert page.evaluate("document.querySelector('#share').disabled")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 820, 1440])
def test_it_fits_and_can_be_read(page: Page, width: int, dark: bool) -> None:
    write(page, WRONG)
    page.resize(width, 900, dark)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    outside = """[...document.querySelectorAll("body *")].filter((element) => {
      const box = element.getBoundingClientRect();
      const inside = element.closest(".sheet, pre") || !box.width;
      return !inside && (box.right > innerWidth || box.left < 0);
    }).map((element) => element.outerHTML)"""
    assert page.evaluate(outside) == []
    layers = """[...document.querySelectorAll(".sheet > *")].map((element) => {
      const {fontFamily, fontSize, lineHeight, padding} = getComputedStyle(element);
      const {left, top} = element.getBoundingClientRect();
      return [fontFamily, fontSize, lineHeight, padding, left, top].join();
    })"""
    assert len(set(page.evaluate(layers))) == 1  # colours and marks lie under their letters
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(15, 18, 22)" if dark else "rgb(246, 247, 249)")


def test_explanations_fit_a_small_laptop(page: Page) -> None:
    """Their longest lines are seen without scrolling sideways."""
    page.resize(1280, 800)
    write(page, (playground.ROOT / "recipes" / "self_play.rl").read_text("utf-8"))
    for tab in ("Explain", "In full"):
        press(page, tab)
        assert page.evaluate("(({scrollWidth: a, clientWidth: b}) => a - b)(panel)") == 0
