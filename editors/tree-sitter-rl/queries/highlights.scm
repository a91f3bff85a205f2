; One capture a node, so that the order of the patterns, which editors read differently, says nothing.

(comment) @comment
(string) @string
(escape) @string.escape
[(number) (money) (duration) (percent)] @number
[(true) (false)] @boolean

(import kind: (name) @keyword.import)
(_ kind: (name) @keyword name: (name) @type.definition)
(expectation kind: (name) @keyword)
(_ type: (name) @type)

(call function: [(name) (attribute)] @function.call)
(argument name: (name) @variable.parameter)
(parameter name: (name) @variable.parameter)
(field name: (name) @property)
(dotted (name) @property)

; What is neither coloured as one of these nor a reference has the colour of the text.
(_ value: [(name) (attribute)] @variable)
(_ default: [(name) (attribute)] @variable)
(_ left: [(name) (attribute)] @variable)
(_ right: [(name) (attribute)] @variable)
(_ operand: [(name) (attribute)] @variable)
(_ base: [(name) (attribute)] @variable)
(list [(name) (attribute)] @variable)
(parentheses [(name) (attribute)] @variable)

"then" @keyword.operator
["=" "|>" "+" "-" "*" "/" "<" "<=" ">" ">=" "==" "!="] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ":" "."] @punctuation.delimiter
