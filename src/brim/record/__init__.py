"""What is written down while a run is going."""

from brim.record.journal import Journal
from brim.record.metrics import MetricsFile
from brim.record.progress_bar import ProgressBar
from brim.record.report import RunPage, write_report
from brim.record.run_folder import RunFolder
from brim.record.run_lock import RunLock

__all__ = ["Journal", "MetricsFile", "ProgressBar", "RunFolder", "RunLock", "RunPage", "write_report"]
