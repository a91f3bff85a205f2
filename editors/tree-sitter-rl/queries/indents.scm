[(record) (parameters) (arguments) (parentheses) (list)] @indent.begin

["}" ")" "]"] @indent.branch @indent.end
