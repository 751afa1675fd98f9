"""The only part of the loop that touches the world: one file a command, each returning events as outcomes."""
