[(record) (parameters) (arguments) (list) (value)] @fold
