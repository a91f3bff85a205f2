import "circle.rl"
