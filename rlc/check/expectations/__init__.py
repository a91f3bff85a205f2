"""Expectations: what they name found, their units compared, and those that are known held."""

from rlc.check.expectations.hold import report_expectations
from rlc.check.expectations.read import CheckedExpectation, check_expectations

__all__ = ["CheckedExpectation", "check_expectations", "report_expectations"]
