"""Runs for people: one page about a run (:mod:`rlc.report.page`), and its episodes.

A run folder is read into records (:mod:`rlc.report.files`, :mod:`rlc.report.episodes`); pure
functions make of them what a page shows; a template writes it down.
"""
