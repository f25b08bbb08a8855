"""Wheels that uv resolves for another system."""

import packaging.tags
import pytest
import tomllib
from ansible.module_utils.trainyard.bundle import systems, wheels
from hypothesis import given
from hypothesis import strategies as st

SUM = 32 * "cd"
# uv 0.13.9 writes such a file; shortened.
PYLOCK = f"""
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.11"

[[packages]]
name = "torch"
version = "2.13.0+cpu"

[[packages.wheels]]
url = "file:///wheels/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"
hashes = {{ sha256 = "{SUM}" }}

[[packages]]
name = "filelock"
version = "4.3.1"

[[packages.wheels]]
url = "https://user:secret@index.example.org/p/filelock-4.3.1-py3-none-any.whl"
size = 244559
hashes = {{ sha256 = "{SUM}" }}
"""
# As glibc 2.36 has them, the best first.
OLD_NAMES = {17: ["manylinux2014_x86_64"], 12: ["manylinux2010_x86_64"], 5: ["manylinux1_x86_64"]}
PLATFORMS = [name for minor in range(36, 4, -1) for name in (f"manylinux_2_{minor}_x86_64", *OLD_NAMES.get(minor, ()))]
ENVIRONMENT = {
    "path": "/opt/trainyard/venvs/pytorch",
    "interpreter": "python3",
    "packages": ["torch==2.13.0 --hash=sha256:" + SUM, "numpy==2.4.6; python_version >= '3.11'"],
    "constraints": ["Jinja2==3.1.6"],
    "lock": f"jinja2==3.1.5 \\\n --hash=sha256:{SUM}\n"
    f"sympy==1.14.0 ; sys_platform == 'linux' \\\n --hash=sha256:{SUM}\n",
}


def test_one_wheel_of_each_package():
    first, second = wheels.read_pylock(tomllib.loads(PYLOCK))
    assert (first.name, first.version, first.bytes, first.sha256) == ("filelock", "4.3.1", 244559, SUM)
    assert "secret" not in first.url
    assert second.file == "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('[[packages.wheels]]\nurl = "file', '[packages.sdist]\nurl = "file'), "torch 2.13.0+cpu has 0 wheels"),
        ((f'hashes = {{ sha256 = "{SUM}" }}', ""), "has no checksum"),
    ],
)
def test_a_package_without_a_wheel_or_its_sum_is_refused(change, why):
    with pytest.raises(wheels.PylockError, match=why.replace("+", r"\+")):
        wheels.read_pylock(tomllib.loads(PYLOCK.replace(*change)))


@pytest.mark.parametrize(
    "names",
    [
        ["cp311-cp311-manylinux_2_28_x86_64", "cp37-abi3-manylinux_2_34_x86_64", "py3-none-any"],
        ["cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64", "cp311-abi3-manylinux2014_x86_64"],
        ["cp311-abi3-manylinux_2_34_x86_64", "cp311-abi3-manylinux_2_28_x86_64", "cp39-abi3-manylinux_2_34_x86_64"],
        ["cp311-abi3-manylinux2014_x86_64", "cp311-abi3-manylinux1_x86_64"],
        ["py3-none-manylinux_2_17_x86_64", "py3-none-any"],
    ],
)
def test_the_wheel_that_is_built_most_for_a_system_is_the_one_that_pip_takes(names):
    """The order is that of pip's own library."""
    tags = [set(packaging.tags.parse_tag(name)) for name in names]
    known = list(packaging.tags.cpython_tags((3, 11), ["cp311"], PLATFORMS))
    known += packaging.tags.compatible_tags((3, 11), "cp311", PLATFORMS)
    best = min(names, key=lambda name: min(known.index(tag) for tag in tags[names.index(name)] if tag in known))
    assert best == names[0]
    offered = [{"url": f"https://i.example.org/x-1-{name}.whl", "hashes": {"sha256": SUM}} for name in reversed(names)]
    package = {"name": "x", "version": "1", "wheels": offered}
    assert [each.file for each in wheels.read_pylock({"packages": [package]})] == [f"x-1-{best}.whl"]
    with pytest.raises(wheels.PylockError, match="has 2 wheels"):
        wheels.read_pylock({"packages": [{**package, "wheels": [offered[-1], offered[-1]]}]})


def test_what_is_asked_of_uv():
    assert wheels.asked(ENVIRONMENT) == ["torch==2.13.0", "numpy==2.4.6; python_version >= '3.11'"]
    # Given constraints win over the role's own pins.
    assert wheels.constraints(ENVIRONMENT) == ["Jinja2==3.1.6", "sympy==1.14.0 ; sys_platform == 'linux'"]
    with_wheel = {**ENVIRONMENT, "wheels": {"torch": f"https://x.example.org/torch.whl#sha256={SUM}"}}
    assert wheels.asked(with_wheel)[0] == f"torch @ https://x.example.org/torch.whl#sha256={SUM}"


def test_the_request_changes_with_all_that_decides():
    before = wheels.request(ENVIRONMENT)
    assert before == wheels.request({**ENVIRONMENT, "min_free_mb": 1})
    for change in ({"packages": ["torch==2.12.0"]}, {"constraints": []}, {"lock": ""}, {"no_index": True},
                   {"index_url": "https://x.example.org"}, {"find_links": ["/wheels"]}):  # fmt: skip
        assert wheels.request({**ENVIRONMENT, **change}) != before


def test_where_packages_come_from():
    text = "global.index-url='https://a.example.org/simple'\nglobal.find-links='/one /two'\n:env:.find-links='/three'\n"
    pip = wheels.read_pip_configuration(text)
    assert wheels.index_variables({}, pip) == {
        "UV_DEFAULT_INDEX": "https://a.example.org/simple", "UV_FIND_LINKS": "/three",
    }  # fmt: skip
    own = {"index_url": "https://b.example.org", "extra_index_urls": ["https://c.example.org"], "find_links": []}
    assert wheels.index_variables(own, pip) == {
        "UV_DEFAULT_INDEX": "https://b.example.org",
        "UV_INDEX": "https://c.example.org",
        "UV_FIND_LINKS": "/three",
    }
    assert wheels.index_options(own) == ["--index-strategy=unsafe-best-match"]
    alone = {"no_index": True, "find_links": ["/w"]}
    assert (wheels.index_options(alone), wheels.index_variables(alone, pip)) == (
        ["--no-index"],
        {"UV_FIND_LINKS": "/w"},
    )


def test_no_lock_has_a_password():
    own = {"index_url": "https://u:hunter2@b.example.org", "wheels": {"torch": "https://u:hunter2@x.example.org/t.whl"}}
    assert "hunter2" not in "".join(wheels.request({**ENVIRONMENT, **own}))


def test_options_of_the_system():
    options = wheels.uv_arguments(systems.named("debian-11-x86_64"), {"interpreter": "python3.10"}, ["--no-index"])
    assert "--python-version=3.10" in options and "--python-platform=x86_64-manylinux_2_31" in options


def test_requirements_with_hashes():
    lines = wheels.requirements(wheels.read_pylock(tomllib.loads(PYLOCK))).splitlines()
    assert lines[0] == "filelock==4.3.1 \\" and lines[1] == f"    --hash=sha256:{SUM}"


@given(st.text())
def test_any_configuration_of_pip_is_read(text):
    wheels.read_pip_configuration(text)
