"""Drives runs: claim, lease, journal, perform, recover.

Promises kept in this room (numbers as in docs/architecture.md):

2.  Append, then fold what was stored.
3.  After event 1 only a claim's holder appends.
4.  Every append under a claim names its fence.
5.  A run starts only by a claim.
7.  ``tool_call`` is stored before the tool is called.
10. No transaction is open across a model call, a tool call, a sleep or a stream.
"""
