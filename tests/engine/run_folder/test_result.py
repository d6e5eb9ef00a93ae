import json
from pathlib import Path

from brim.engine.run_folder.result import Result


def test_as_json_it_is_what_can_be_printed_and_the_folder_is_left_to_the_caller():
    result = Result(Path("runs/1"), 20, 2, 1.23456, "done", {"loss": 0.5})
    made = result.as_json()
    assert made == {"steps": 20, "epochs": 2, "seconds": 1.235, "ended": "done", "metrics": {"loss": 0.5}}
    assert json.loads(json.dumps(made)) == made
