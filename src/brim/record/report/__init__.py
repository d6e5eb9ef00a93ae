"""report.html: one page that shows a run, self-contained, so that it can be mailed or opened years later.

A run folder comes in; the page goes out, and what it shows as plain data. Its script and style are in ``page/``.
"""

from brim.record.report.run_page import REPORT, RunPage, write_report

__all__ = ["REPORT", "RunPage", "write_report"]
