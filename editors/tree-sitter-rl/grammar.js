/**
 * Recipes of rlc for editors: grammar/rl.lark, which the compiler reads, as tree-sitter writes it.
 * Nodes have the names of its rules. `npm run generate` writes src/ anew.
 *
 * Kinds and builtins are plain names here too: what they mean is the language server's to say. What
 * looks like a number and is none, `5ms`, is `malformed`, so that the text around it is still read.
 */

const list = (item) => seq(item, repeat(seq(',', item)), optional(','))

const digits = /[0-9]+(_[0-9]+)*(\.[0-9]+(_[0-9]+)*)?([eE][+-]?[0-9]+)?/

module.exports = grammar({
  name: 'rl',

  // `then`, `true` and `false` are words only where the grammar can use them: elsewhere, names.
  word: ($) => $.name,
  extras: ($) => [/[ \t\r\n\f]/, $.comment],

  rules: {
    recipe: ($) => repeat($._declaration),

    _declaration: ($) => choice($.block, $.value, $.expectation, $.import),

    block: ($) => seq($._head, field('body', $.record)),
    value: ($) =>
      seq(
        choice($._head, seq($._bare_head, ':', field('type', $._type))),
        '=',
        field('value', $._expression),
      ),
    _head: ($) => seq($._bare_head, optional(field('parameters', $.parameters))),
    _bare_head: ($) => seq(field('kind', $.name), field('name', $.name)),
    expectation: ($) =>
      seq(field('kind', $.name), field('comparison', alias($._expected, $.compare))),
    import: ($) => seq(field('kind', $.name), field('path', $.string)),

    parameters: ($) => seq('(', optional(list($.parameter)), ')'),
    parameter: ($) =>
      seq(
        field('name', $.name),
        optional(seq(':', field('type', $._type))),
        optional(seq('=', field('default', $._expression))),
      ),
    _type: ($) => choice($._path, $.call),

    record: ($) => seq('{', repeat(seq($.field, optional(','))), '}'),
    field: ($) =>
      seq(field('name', choice($.name, $.dotted)), '=', field('value', $._expression)),
    dotted: ($) => seq($.name, repeat1(seq('.', $.name))),

    // Operators, loosest first; a pipeline and arithmetic have no precedence between them.
    _expression: ($) => choice($._flow, $.then),
    then: ($) => seq(field('left', $._expression), 'then', field('right', $._flow)),

    _flow: ($) => choice($._sum, $.compare, $.pipe),
    compare: ($) => comparison($, $._sum),
    _expected: ($) => comparison($, $._path),
    pipe: ($) => seq(field('left', choice($._atom, $.pipe)), '|>', field('right', $._atom)),

    _sum: ($) => choice($._product, alias($._addition, $.arithmetic)),
    _addition: ($) =>
      seq(
        field('left', $._sum),
        field('operator', choice('+', '-')),
        field('right', $._product),
      ),
    _product: ($) => choice($._unary, alias($._multiplication, $.arithmetic)),
    _multiplication: ($) =>
      seq(
        field('left', $._product),
        field('operator', choice('*', '/')),
        field('right', $._unary),
      ),
    _unary: ($) => choice($._atom, $.negative),
    negative: ($) => seq('-', field('operand', $._unary)),

    _atom: ($) =>
      choice(
        $._path,
        $.call,
        $.amend,
        $.parentheses,
        $.list,
        $.record,
        $.number,
        $.money,
        $.duration,
        $.percent,
        $.string,
        $.true,
        $.false,
        $.malformed,
      ),
    amend: ($) => seq(field('base', choice($._path, $.call)), field('body', $.record)),
    parentheses: ($) => seq('(', $._expression, ')'),
    list: ($) => seq('[', optional(list($._expression)), ']'),

    call: ($) => seq(field('function', $._path), field('arguments', $.arguments)),
    arguments: ($) => seq('(', optional(list($.argument)), ')'),
    argument: ($) =>
      seq(optional(seq(field('name', $.name), '=')), field('value', $._expression)),

    _path: ($) => choice($.name, $.attribute),
    attribute: ($) => seq(field('value', $._path), '.', field('attribute', $.name)),

    true: (_) => 'true',
    false: (_) => 'false',
    name: (_) => /[A-Za-z_][A-Za-z0-9_]*/,
    number: (_) => token(digits),
    money: (_) => token(seq('$', digits)),
    duration: (_) => token(seq(digits, /[smhd]/)),
    percent: (_) => token(seq(digits, '%')),
    // A number never touches a letter, digit or point that is not part of it.
    malformed: (_) => /\$?[0-9]([A-Za-z0-9_.]|[eE][+-])*%?[A-Za-z0-9_]*/,
    string: ($) => seq('"', repeat(choice($._text, $.escape)), token.immediate('"')),
    _text: (_) => token.immediate(prec(1, /[^"\\\r\n]+/)),
    escape: (_) => token.immediate(/\\["\\nt]/),
    comment: (_) => /#[^\n]*/,
  },
})

function comparison($, left) {
  return seq(
    field('left', left),
    field('operator', choice('<', '<=', '>', '>=', '==', '!=')),
    field('right', $._sum),
  )
}
