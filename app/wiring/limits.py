"""Limits of the operating system that would show as failures of the service."""

import resource


def raise_file_limit() -> None:
    """Lets this process open as many files as it may: each open stream is one, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
