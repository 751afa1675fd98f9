"""Alembic's environment. It lies inside the package so that an installed service can migrate its own database."""
