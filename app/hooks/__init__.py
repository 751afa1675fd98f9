"""The hooks and guardrails that a process has, and those that are shipped."""

from app.hooks.injection import InjectionGuard
from app.hooks.length import LengthGuard
from app.hooks.patterns import PatternRedactor
from app.hooks.registry import HookRegistry

__all__ = ["HookRegistry", "InjectionGuard", "LengthGuard", "PatternRedactor"]
