"""``python -m app`` is ``runwright``."""

from app.cli import main

if __name__ == "__main__":
    main()
