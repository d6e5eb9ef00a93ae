import os

import pytest

from brim.doctor.watching.shadow_tree import ShadowTree


@pytest.fixture
def tree(tmp_path):
    """One over a folder with a file."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "notes.txt").write_text("mine")
    return ShadowTree(tmp_path / "shadow", homes=(str(tmp_path / "home"),), own=(str(tmp_path / "home" / "compiled"),))


def test_only_files_of_the_users_lie_elsewhere(tree, tmp_path):
    assert tree.target(3) is None and tree.target("/dev/null") is None
    assert tree.target(tmp_path / "home" / "a") == f"{tmp_path}/shadow{tmp_path}/home/a"
    assert tree.target(tmp_path / "home" / "compiled" / "a.cpp") is None
    tree._temporary = str(tmp_path)
    assert tree.target(tmp_path / "a") is None and tree.target(tmp_path / "home" / "a") is not None


def test_what_was_written_is_read_and_what_is_hidden_is_not(tree, tmp_path):
    notes = str(tmp_path / "home" / "notes.txt")
    assert tree.current(notes) == notes and tree.current(3) == 3
    with open(tree.prepared(notes, keep=True), "a") as file:
        file.write(" and more")
    assert open(tree.current(notes)).read() == "mine and more" and open(notes).read() == "mine"
    os.unlink(tree.target(notes))
    tree.hide(tree.target(notes))
    assert not tree.is_visible(notes) and tree.names_in(tmp_path / "home") == []
    with pytest.raises(FileNotFoundError):
        tree.current(notes)


def test_a_path_in_the_folder_means_the_users(tree, tmp_path):
    assert tree.name(tree.target(tmp_path / "home" / "a")) == f"{tmp_path}/home/a"


def test_links_are_followed_by_name_and_not_in_circles(tree, tmp_path):
    home = f"{tmp_path}/home"
    tree.links |= {f"{home}/latest": f"{home}/run/1", f"{home}/run": home}
    assert tree.name(f"{home}/latest/a.pt") == f"{home}/1/a.pt"
    assert tree.name(f"{home}/latest", follows=False) == f"{home}/latest"
    tree.links[f"{home}/self"] = f"{home}/self"
    assert tree.name(f"{home}/self") == f"{home}/self"


def test_a_folder_is_removed_with_all_that_is_in_it_but_not_what_a_link_leads_to(tree, tmp_path):
    (tmp_path / "made" / "deep").mkdir(parents=True)
    (tmp_path / "made" / "deep" / "a").write_text("1")
    (tmp_path / "made" / "link").symlink_to(tmp_path / "home")
    tree.remove_tree(str(tmp_path / "made"))
    assert not (tmp_path / "made").exists() and (tmp_path / "home" / "notes.txt").exists()
