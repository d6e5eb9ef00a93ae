"""Drawings that a workload leaves for the page of its run."""

import base64

from brim.record.report.page_data import page_data
from brim.record.report.pictures import MOST, MOST_BYTES, pictures_in
from brim.record.run_folder import RunFolder
from brim.record.run_record import read_run


def test_pictures_of_a_run_are_images_on_its_page(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "pictures").mkdir()
    (folder.path / "pictures" / "forecast.svg").write_text("<svg/>")
    shown = page_data(read_run(folder))["pictures"]
    assert shown == [
        {"name": "forecast", "address": f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}"}
    ]


def test_few_and_small_ones_alone_are_taken(tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(MOST + 3):
        (tmp_path / "pictures" / f"{number:02}.svg").write_text("<svg/>")
    (tmp_path / "pictures" / "00.svg").write_text("x" * (MOST_BYTES + 1))
    assert [picture.name for picture in pictures_in(tmp_path)] == [f"{number:02}" for number in range(1, MOST)]


def test_a_run_without_pictures_has_none(tmp_path):
    assert pictures_in(tmp_path) == ()
