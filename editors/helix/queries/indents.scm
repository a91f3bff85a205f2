[(record) (parameters) (arguments) (parentheses) (list)] @indent

["}" ")" "]"] @outdent
