; The parameters of a declaration are known in it alone. All else is known everywhere, also before
; its declaration and in other files: that is the language server's.

[(block) (value)] @local.scope

(parameter name: (name) @local.definition.parameter)

(_ value: (name) @local.reference)
(_ default: (name) @local.reference)
(_ left: (name) @local.reference)
(_ right: (name) @local.reference)
(_ operand: (name) @local.reference)
(_ base: (name) @local.reference)
(list (name) @local.reference)
(parentheses (name) @local.reference)
