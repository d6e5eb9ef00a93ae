collect_ignore = ["planted"]  # scripts that train without an end: the doctor runs them, not pytest
