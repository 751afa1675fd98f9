"""Protocols and plain records that let the rooms meet without knowing each other."""
