"""What becomes of a conversation that has outgrown the model's window."""

from enum import StrEnum


class HistoryPolicy(StrEnum):
    """``fit`` leaves out the oldest turns, whole ones. ``all`` leaves out nothing: a run that does not fit fails."""

    FIT = "fit"
    ALL = "all"
