import re

import pytest
from helpers.records import a_record, data_of

from brim.record import RunFolder, write_report
from brim.record.report.page_data import page_data
from brim.record.report.page_file import ONE_RUN, TWO_RUNS, render
from brim.record.run_record import read_run


def test_the_page_holds_what_page_data_says_whatever_the_texts_are(tmp_path):
    folder = RunFolder.create(tmp_path)
    folder.write("config.yaml", "a: '</script><!-- <script> {{style}} \\g<0> \u2028 é'\n")
    data = page_data(read_run(folder))
    assert "{{style}}" in data["config"]
    html = write_report(folder).read_text()
    assert data_of(html) == data
    assert html.count("</script>") == 2


@pytest.mark.parametrize("page", [ONE_RUN, TWO_RUNS])
def test_the_page_names_nothing_outside_itself(page):
    html = render(page_data(a_record()), page)
    assert not re.search(r"""(src|href)=["'](?!data:)""", html)
    assert "default-src 'none'" in html
    assert "@import" not in html and "url(" not in html


def test_a_number_that_json_cannot_say_is_refused():
    with pytest.raises(ValueError):
        render({"a": float("nan")})
