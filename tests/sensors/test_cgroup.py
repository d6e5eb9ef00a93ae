import pytest

from brim.sensors.cgroup import CpuGrant, cpu_grant, cpu_statistics, memory_limit


@pytest.fixture
def group(tmp_path):
    """Write files of a cgroup by their paths; the process is in /a/b."""
    own = tmp_path / "own"
    own.write_text("1:name=systemd:/\n0::/a/b\n")
    root = tmp_path / "cgroup"

    def write(**files):
        for name, text in files.items():
            path = root / name.replace("__", "/").replace("-", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root, own

    return write


def test_without_limits_there_is_none(group):
    root, own = group(**{"a__b__cpu-max": "max 100000", "a__b__memory-max": "max", "a__b__memory-current": "5"})
    assert cpu_grant(root, own) is None and memory_limit(root, own) is None
    assert cpu_grant(root / "none", own / "none") is None and memory_limit(root / "none", own / "none") is None


def test_the_tightest_limit_on_the_way_up_counts(group):
    root, own = group(**{
        "a__b__cpu-max": "400000 100000", "a__b__cpu-stat": "usage_usec 1\n",
        "a__cpu-max": "150000 100000",
        "a__cpu-stat": "usage_usec 2500000\nnr_periods 100\nnr_throttled 30\nthrottled_usec 9\nodd line here\n",
        "a__b__memory-max": "1000", "a__b__memory-current": "900", "a__b__memory-stat": "inactive_file 300\n",
        "a__memory-max": "5000", "a__memory-current": "4000",
    })  # fmt: skip
    assert cpu_grant(root, own) == CpuGrant(1.5, 2.5, 100, 30)
    assert cpu_statistics(root, own) == root / "a" / "b" / "cpu.stat"
    assert memory_limit(root, own) == (1000, 600)


def test_a_group_around_that_others_have_filled_leaves_less_than_the_own_limit(group):
    root, own = group(**{
        "a__b__memory-max": "1000", "a__b__memory-current": "100",
        "a__memory-max": "1600", "a__memory-current": "1550",
    })  # fmt: skip
    assert memory_limit(root, own) == (1600, 1550)


def test_in_a_container_the_own_group_is_the_root(group):
    root, own = group(**{"cpu-max": "50000 100000", "memory-max": "70", "memory-current": "7"})
    own.write_text("0::/../../docker/abc\n")
    assert cpu_grant(root, own) == CpuGrant(0.5, None, None, None) and memory_limit(root, own) == (70, 7)


def test_version_1(group):
    root, own = group(**{
        "cpu__cpu-cfs_quota_us": "200000", "cpu__cpu-cfs_period_us": "100000",
        "cpu__cpu-stat": "nr_periods 10\nnr_throttled 5\nthrottled_time 1\n", "cpuacct__cpuacct-usage": "3000000000",
        "memory__memory-limit_in_bytes": "100", "memory__memory-usage_in_bytes": "60",
        "memory__memory-stat": "total_inactive_file 20\n",
    })  # fmt: skip
    assert cpu_grant(root, own) == CpuGrant(2.0, 3.0, 10, 5) and memory_limit(root, own) == (100, 40)
    assert cpu_statistics(root, own) == root / "cpu" / "cpu.stat"
    group(**{"cpu__cpu-cfs_quota_us": "-1", "memory__memory-limit_in_bytes": str(2**63 - 4096)})
    assert cpu_grant(root, own) is None and memory_limit(root, own) is None


@pytest.mark.parametrize("content", ["", "x y", "1", "5 0", "1 2 3"])
def test_a_file_that_says_something_else_is_no_limit(group, content):
    root, own = group(**{"a__b__cpu-max": content, "a__b__memory-max": content, "a__b__memory-current": content})
    assert cpu_grant(root, own) is None
    assert (memory_limit(root, own) is None) == (content != "1")
