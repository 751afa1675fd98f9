"""The questions that ``decide`` asks, one a file."""
