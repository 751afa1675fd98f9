"""The hooks and guardrails that a process has, and those that are shipped."""

from app.hooks.allowlist import ModelAllowList
from app.hooks.chain import HookChain
from app.hooks.injection import InjectionGuard
from app.hooks.length import LengthGuard
from app.hooks.patterns import PatternRedactor
from app.hooks.redactor import Redactor
from app.hooks.registry import HookRegistry

__all__ = [
    "HookChain",
    "HookRegistry",
    "InjectionGuard",
    "LengthGuard",
    "ModelAllowList",
    "PatternRedactor",
    "Redactor",
]
