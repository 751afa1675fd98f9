"""Verified stand-ins for what a test can't wait for: time, ids and a model."""

from app.providers.scripted import ScriptedCall, ScriptedDelta, ScriptedError, ScriptedProvider, ScriptedStep
from app.testing.clock import FakeClock
from app.testing.ids import SequentialIds

__all__ = [
    "FakeClock",
    "ScriptedCall",
    "ScriptedDelta",
    "ScriptedError",
    "ScriptedProvider",
    "ScriptedStep",
    "SequentialIds",
]
