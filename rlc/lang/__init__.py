"""The language, without its vocabulary: text, syntax and diagnostics.

``source`` has texts and spans, ``read`` files, ``ast`` the syntax tree that ``syntax/`` returns,
and ``imports`` adds the declarations of other files to it. ``diagnostics`` are printed by
``render``, numbered in ``codes`` and explained in ``pages/``; ``fixes`` applies theirs.
``formatter`` is `rlc fmt`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.lang.ast import *
    from rlc.lang.codes import *
    from rlc.lang.diagnostics import *
    from rlc.lang.fixes import *
    from rlc.lang.formatter import *
    from rlc.lang.imports import *
    from rlc.lang.pages import *
    from rlc.lang.read import *
    from rlc.lang.render import *
    from rlc.lang.secrets import *
    from rlc.lang.source import *
    from rlc.lang.suggest import *
    from rlc.lang.syntax.malformed import *
    from rlc.lang.words import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        ast: Amend Argument Attribute Binary BlockDecl Bool COMPARISONS Call Decl Expectation
            Expr Field ImportDecl ListExpr Name Negative Node Number Parameter Quantity Recipe
            RecordExpr String ValueDecl
        codes: code_titles
        diagnostics: Diagnostic Diagnostics Fix Label Severity in_order replace
        fixes: fix_all
        formatter: format_expression format_text
        imports: Read resolve_imports
        pages: page render_page
        read: MAX_BYTES STDIN read_source recipe_files write_text
        render: finding_dicts render_github render_json render_sarif
        secrets: is_variable masked
        source: Source Span printable
        suggest: did_you_mean is_slip nearest sole_nearest
        syntax.malformed: report_comparison
        words: COMMENT read_words string_value vocabulary
        """,
    )
