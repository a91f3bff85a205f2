(block body: (record) @class.inside) @class.around
(value value: (_) @class.inside) @class.around

(call arguments: (arguments) @function.inside) @function.around

(argument) @parameter.inside
(parameter) @parameter.inside

(field value: (_) @entry.inside) @entry.around

(comment) @comment.inside
(comment)+ @comment.around
