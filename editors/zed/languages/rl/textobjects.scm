(block body: (record "{" (_)* @class.inside "}")) @class.around
(call arguments: (arguments "(" (_)* @function.inside ")")) @function.around
(comment)+ @comment.around
