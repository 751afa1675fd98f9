"""What can be seen of the service from outside: logs and metrics, derived from events."""

from app.observability.engine import EngineFigures
from app.observability.lag import measure_loop_lag
from app.observability.logs import configure_logs, get_logger
from app.observability.metrics import Metrics, Watched
from app.observability.scrape import Scraper
from app.observability.sink import ObservingSink

__all__ = [
    "EngineFigures",
    "Metrics",
    "ObservingSink",
    "Scraper",
    "Watched",
    "configure_logs",
    "get_logger",
    "measure_loop_lag",
]
