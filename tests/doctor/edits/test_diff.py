from brim.doctor.edits.diff import diff_of


def test_a_last_line_without_an_end_is_marked():
    made = diff_of("a.py", "x = 1", "x = 2")
    assert made.count("\\ No newline at end of file") == 2 and "-x = 1\n" in made and "+x = 2\n" in made


def test_only_line_feeds_end_lines():
    assert diff_of("a.py", "x = '\x0c'\ny = 1\n", "x = '\x0c'\ny = 2\n").count("\n") == 6
