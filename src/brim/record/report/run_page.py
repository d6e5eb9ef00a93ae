"""The page of one run, written once or again and again while the run goes on."""

from pathlib import Path

from brim.record.report.page_data import page_data
from brim.record.report.page_file import render
from brim.record.run_folder import RunFolder
from brim.record.run_record import RunReader

REPORT = "report.html"


class RunPage:
    """Writes ``report.html``; what was read for the page before is not read again."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._reader = RunReader(folder)

    def write(self) -> Path:
        """The page as the run stands, and where it is."""
        self.folder.write(REPORT, render(page_data(self._reader.read())))
        return self.folder.path / REPORT


def write_report(folder: RunFolder) -> Path:
    """Write ``report.html`` of a run, finished or not, and say where it is.

    >>> write_report(RunFolder.open("runs/20260102-030405-bpr"))  # doctest: +SKIP
    PosixPath('runs/20260102-030405-bpr/report.html')
    """
    return RunPage(folder).write()
