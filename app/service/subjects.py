"""In whose name somebody may ask."""

from app.auth import Principal
from app.errors import Forbidden


def settle_user(principal: Principal, user: str | None) -> str | None:
    """The user of a run or session that a caller names, or names none of. Raises Forbidden (``user_mismatch``) where
    the caller is a person, and it is somebody else."""
    if principal.user is None:
        return user
    if user is not None and user != principal.user:
        raise Forbidden("user is another person than the token is about", code="user_mismatch")
    return principal.user


def check_user(principal: Principal, user: str | None) -> None:
    """The same for a run that is made of an earlier one. What is nobody's may be anybody's."""
    if user is not None:
        settle_user(principal, user)
