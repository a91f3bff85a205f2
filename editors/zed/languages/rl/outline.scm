(block kind: (name) @context name: (name) @name) @item
(value kind: (name) @context name: (name) @name) @item
(import kind: (name) @context path: (string) @name) @item
(expectation kind: (name) @context comparison: (compare) @name) @item
