"""What is written down while a run is going.

In: sentences, numbers and events of a run. Out: its folder: log, events, metrics, and a lock that says whether it
still goes on.
"""

from brim.record.journal import Journal
from brim.record.metrics import MetricsFile
from brim.record.progress_bar import ProgressBar
from brim.record.report import RunPage, write_report
from brim.record.run_folder import RunFolder
from brim.record.run_lock import RunLock

__all__ = ["Journal", "MetricsFile", "ProgressBar", "RunFolder", "RunLock", "RunPage", "write_report"]
