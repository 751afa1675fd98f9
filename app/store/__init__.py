"""Postgres: the log, the queue, tenants' transactions under row security, and news over LISTEN/NOTIFY."""
