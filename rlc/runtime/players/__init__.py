"""Players: other processes in which whole episodes are played, their sampling included."""
