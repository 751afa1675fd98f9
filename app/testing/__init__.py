"""Verified fakes, public: a plugin's tests may use what ours use."""

from app.testing.clock import FakeClock
from app.testing.ids import SequentialIds

__all__ = ["FakeClock", "SequentialIds"]
