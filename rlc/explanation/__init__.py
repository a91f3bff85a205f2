"""A plan as text and as JSON: what people read, and paste into a pull request."""

from rlc.explanation.data import explain_dict
from rlc.explanation.summary import summary_text
from rlc.explanation.text import explain_text

__all__ = ["explain_dict", "explain_text", "summary_text"]
