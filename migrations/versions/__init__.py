"""One revision a file; what is long in it is SQL beside it. A revision that was released is never edited."""
