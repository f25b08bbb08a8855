"""The machine's configuration of pip, as a container gets it."""

import pytest
from ansible.module_utils.trainyard_node.software import pip_settings


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a home folder with a configuration, on a machine without one of its own."""
    monkeypatch.setattr(pip_settings, "_OF_SYSTEM", ())
    monkeypatch.setattr(pip_settings, "_CERTIFICATES", (str(tmp_path / "ca.crt"),))
    (tmp_path / "ca.crt").touch()
    for folder in ("wheels", "index/simple"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def read(home, text="", given=None, **variables):
    file = home / "pip.conf"
    file.write_text(text)
    return pip_settings.settings({"HOME": str(home), "PIP_CONFIG_FILE": str(file), **variables}, given or {})


def test_what_is_given_wins_over_the_environment_and_this_over_files(home):
    text = "[global]\nindex-url = https://file\ntimeout = 60\n[install]\nfind_links =\n  /a\n  /b\n"
    assert read(home, text)["index-url"] == "https://file"
    assert read(home, text)["find-links"] == "/a /b"
    assert read(home, text, PIP_INDEX_URL="https://variable")["index-url"] == "https://variable"
    given = {"PIP_INDEX_URL": "https://given"}
    assert read(home, text, given, PIP_INDEX_URL="https://variable")["index-url"] == "https://given"


def test_caches_and_targets_stay_on_the_machine(home):
    text = "[global]\ncache-dir = /c\ntarget = /t\nproxy = http://proxy\n"
    assert read(home, text, PIP_USER="1") == {"proxy": "http://proxy", "cert": str(home / "ca.crt")}


def test_the_certificates_are_the_systems_unless_pip_names_others(home):
    assert read(home)["cert"] == str(home / "ca.crt")
    assert read(home, PIP_CERT="/srv/ca.pem")["cert"] == "/srv/ca.pem"


def test_an_unreadable_configuration_counts_as_none(home):
    assert read(home, "no section\n") == {"cert": str(home / "ca.crt")}


def test_pip_without_configuration_files(home):
    settings = pip_settings.settings({"HOME": str(home), "PIP_CONFIG_FILE": "/dev/null"}, {})
    assert settings == {"cert": str(home / "ca.crt")}


def test_folders_are_those_of_wheels_and_the_parents_of_indexes(home):
    index = (home / "index/simple").as_uri()
    chosen = {"find-links": f"{home}/wheels https://links {home}/none /", "extra-index-url": f"{index}/ https://index"}
    assert pip_settings.folders(chosen) == [str(home / "index"), str(home / "wheels")]


def test_the_text_is_a_configuration_that_reads_the_same(home):
    chosen = read(home, PIP_EXTRA_INDEX_URL="https://me:100%25@a https://b")
    assert read(home, pip_settings.text(chosen)) == chosen
