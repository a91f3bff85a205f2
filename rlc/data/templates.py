"""Texts in files of the user's own, and Jinja2 templates with the variables that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlc.data.errors import DataError, FilePlace
from rlc.plan import is_text_file
from rlc.records import frozen

if TYPE_CHECKING:
    from jinja2 import Template


def read_text(path: str) -> str:
    """The text of a file. Raise DataError if it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason} at byte {error.start:,}") from error


def text_of(given: str) -> str:
    """The text that a plan has, or that is in the file that it names. Raise DataError if that
    cannot be read, or has no text."""
    if not is_text_file(given):
        return given
    if not (text := read_text(given).strip()):
        raise DataError(f"there is no text in {given}")
    return text


@frozen
class ParsedTemplate:
    """A template, and the line in which each of its variables is used first."""

    template: Template
    variables: dict[str, int]

    def unknown(self, given: Sequence[str]) -> list[str]:
        """The variables that nothing gives a value."""
        return [name for name in self.variables if name not in given]

    def unused(self, given: Sequence[str]) -> list[str]:
        """What is given and would not be shown."""
        return [name for name in given if name not in self.variables]


def parsed_template(path: str) -> ParsedTemplate:
    """The template of a jinja2 file. Raise DataError, with the place, if it is not one."""
    from jinja2 import Environment, StrictUndefined, TemplateError, TemplateSyntaxError, meta, nodes

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
        tree = environment.parse(text)
        names = meta.find_undeclared_variables(tree)
        template = environment.from_string(text)
    except OSError as error:
        raise DataError(f"cannot read the template {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read the template {path}: {error}") from error
    except TemplateSyntaxError as error:
        place, why = FilePlace(path, error.lineno, error.lineno), (error.message or "").rstrip(".")
        raise DataError(f"this is no jinja2 template: {why}", place=place) from error
    except (TemplateError, RecursionError) as error:
        raise DataError(f"{path} is no jinja2 template: {error}") from error
    used: dict[str, int] = {}
    for name in sorted(tree.find_all(nodes.Name), key=lambda name: name.lineno):
        if name.name in names:
            used.setdefault(name.name, name.lineno)
    return ParsedTemplate(template, used)


def read_template(path: str, variables: Sequence[str]) -> Callable[..., Any]:
    """What renders the template of a jinja2 file. Raise DataError unless it uses exactly these
    variables."""
    read = parsed_template(path)
    if read.unknown(variables) or read.unused(variables):
        needed = " and ".join(f"`{name}`" for name in variables)
        found = ", ".join(sorted(read.variables)) or "none"
        plural = "s" if len(variables) > 1 else ""
        raise DataError(
            f"{path} must use the variable{plural} {needed} and no other; found: {found}"
        )
    return read.template.render
