"""What a repository has beside its code: workflows, templates, a changelog and a citation in their forms."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
TEMPLATES = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no workflows")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_rights_that_it_names_and_calls_targets_that_are_there(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    called = [
        line.split()[1:] for step in steps for line in step.get("run", "").splitlines() if line.startswith("make ")
    ]
    assert all(name in known for names in called for name in names)
    assert all(re.search(r"@v\d|@release/v\d", step["uses"]) for step in steps if "uses" in step)


def test_what_the_workflows_test_is_what_the_package_says_it_supports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["others"]["strategy"]["matrix"]
    supported = {line.rpartition(" ")[2] for line in project["classifiers"] if line.startswith("Programming Language")}
    assert {row["python"] for row in matrix["include"]} == supported


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_asks_for_something(path):
    template = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(template)
    fields = [field for field in template["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in fields)


def test_the_changelog_keeps_to_its_form():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", version) for version in versions[1:])
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= KINDS


def test_the_citation_has_what_its_schema_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation) and all("name" in author for author in citation["authors"])
