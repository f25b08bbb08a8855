"""The role python_runtime: an environment that all users can read, that is repaired, and that rejects bad input."""

import json

import pytest

VENV = "/opt/trainyard/venvs/molecule"
OTHER = "/opt/trainyard/venvs/other"


@pytest.fixture(scope="module", autouse=True)
def environment(nodes):
    """Remove everything of this scenario: other scenarios need nodes that are alike."""
    yield
    for node in nodes.values():
        node.host.check_output(f"rm -rf {VENV}")


@pytest.fixture(scope="module")
def node(first):
    """The first node; the environment `other`, which tests make and break, is gone at the end."""
    yield first
    first.check_output(f"sudo rm -rf {OTHER}")


@pytest.fixture
def bare(node):
    """The first node without the environment `other`."""
    node.check_output(f"sudo rm -rf {OTHER}")
    return node


@pytest.fixture
def run(run_playbook, node_names):
    """Run the role on the first node with other input."""
    return lambda *arguments, **extra: run_playbook("changed.yml", "--limit", node_names[0], *arguments, **extra)


def test_it_is_compiled_and_verified_and_the_training_user_cannot_change_it(host):
    shown = host.check_output(f"sudo -u train {VENV}/bin/python -c 'import jinja2; print(jinja2.__version__)'")
    assert shown == "3.1.6"
    refused = host.run(f"sudo -u train touch {VENV}/lib/mine")
    assert refused.rc != 0
    assert "Permission denied" in refused.stderr
    host.check_output(f"ls {VENV}/lib/python*/site-packages/jinja2/__pycache__/environment.*.pyc")
    record = json.loads(host.check_output(f"cat {VENV}/.trainyard.json"))
    assert record["verified"]["result"] == {"user": "train", "jinja2": "3.1.6"}


def test_check_mode_reports_changes_and_makes_none(run, bare):
    done = run("--check", "--diff").expect(0, "reasons: there is no environment yet")
    assert "+markupsafe==3.0.4" in done.text.lower()
    assert not bare.file(OTHER).exists


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"python_runtime_name": "../up"}, ["python_runtime_name is '../up', expected a single folder name"]),
        (
            {
                "python_runtime_python_min": "3.99",
                "python_runtime_no_index": True,
                "python_runtime_min_free_mb": 999999999,
                "python_runtime_verify_script": "print('{}')",
                "python_runtime_verify_user": "nobody9",
            },
            [
                "the packages support 3.99 to any; name another interpreter",
                "no_index without find_links leaves pip no source",
                "999999999 MB are needed; make room, or choose another root",
                "the check is to run as user 'nobody9', which this host does not have",
            ],
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(run, bare, given, texts):
    run(**given).fails(*texts)
    assert not bare.file(OTHER).exists


def test_a_foreign_folder_is_not_touched(run, bare):
    bare.check_output(f"sudo mkdir -p {OTHER} && sudo touch {OTHER}/precious")
    run().fails(f"{OTHER} was not made by trainyard; move it away")
    assert bare.file(f"{OTHER}/precious").exists


def test_a_package_that_was_removed_comes_back(run, bare):
    assert run().rc == 0
    bare.check_output(f"sudo {OTHER}/bin/pip uninstall --quiet --yes markupsafe")
    run(step="verify").fails(f"{OTHER} differs from what is requested: markupsafe 3.0.4 is not installed")
    run().expect(0, "reasons: markupsafe 3.0.4 is not installed")
    assert run(step="verify").rc == 0


def test_a_version_that_no_index_has_leaves_the_environment_as_it_was(run, node):
    assert run().rc == 0
    run(python_runtime_packages=["MarkupSafe==3.0.99"]).fails(
        f"pip could not install MarkupSafe==3.0.99 into {OTHER}", "No matching distribution found"
    )
    run().expect(0).changes_nothing()


def test_a_verification_that_fails_fails_the_role_until_it_succeeds(run, node):
    done = run(python_runtime_verify_script="raise SystemExit('no such luck')")
    done.fails(f"the check of {OTHER} failed with status 1: no such luck")
    run(python_runtime_verify_script="print('{}')").expect(0, "reasons: it is not verified yet")


def test_wheels_from_a_folder_need_no_index(run, bare):
    bare.check_output("sudo rm -rf /srv/wheels && sudo mkdir -p /srv/wheels")
    try:
        none = run(python_runtime_find_links=["/srv/wheels"], python_runtime_no_index=True)
        none.fails("No matching distribution found for MarkupSafe==3.0.4")
        bare.check_output(f"sudo {VENV}/bin/pip download --quiet --no-deps --dest /srv/wheels MarkupSafe==3.0.4")
        found = {"python_runtime_find_links": ["/srv/wheels"], "python_runtime_no_index": True}
        run(**found).expect(0, "reasons: an interrupted run left the environment unfinished")
    finally:
        bare.check_output("sudo rm -rf /srv/wheels")


@pytest.fixture
def wheel(bare):
    """A function that returns address and sum of a wheel of MarkupSafe, and of another build with the same version."""
    bare.check_output("sudo rm -rf /srv/wheels && sudo mkdir -p /srv/wheels/other")
    bare.check_output(f"sudo {VENV}/bin/pip download --quiet --no-deps --dest /srv/wheels MarkupSafe==3.0.4")
    name = bare.check_output("cd /srv/wheels && ls *.whl")
    mark = f"import zipfile; zipfile.ZipFile('/srv/wheels/other/{name}', 'a').writestr('markupsafe/other.txt', '')"
    bare.check_output(f'sudo cp /srv/wheels/{name} /srv/wheels/other/ && sudo python3 -c "{mark}"')

    def address(folder="/srv/wheels"):
        return f"file://{folder}/{name}#sha256={bare.check_output(f'sha256sum {folder}/{name}').split()[0]}"

    yield address
    bare.check_output("sudo rm -rf /srv/wheels")


def test_a_wheel_is_taken_from_its_address_and_another_build_of_it_replaces_it(run, bare, wheel):
    run(python_runtime_wheels={"MarkupSafe": wheel()}).expect(0)
    assert not bare.run(f"ls {OTHER}/lib/python*/site-packages/markupsafe/other.txt").succeeded
    other = {"python_runtime_wheels": {"MarkupSafe": wheel("/srv/wheels/other")}}
    run(**other).expect(0, "reasons: markupsafe is from another wheel than the requested one")
    assert bare.run(f"ls {OTHER}/lib/python*/site-packages/markupsafe/other.txt").succeeded
    assert set(run(**other).changes.values()) == {0}


def test_a_wheel_with_another_sum_is_refused_and_what_was_there_stays(run, bare, wheel):
    assert run().rc == 0
    address = wheel()
    run(python_runtime_wheels={"MarkupSafe": address[:-64] + 64 * "0"}).fails(
        f"has the sha256 {address[-64:]}, which is none of those expected", "correct the sum of the wheel"
    )
    assert set(run().changes.values()) == {0}


def test_a_package_of_another_hash_is_refused(run, wheel):
    pin = "MarkupSafe==3.0.4 --hash=sha256:"
    given = {"python_runtime_find_links": ["/srv/wheels"], "python_runtime_no_index": True}
    refused = run(**given, python_runtime_packages=[pin + 64 * "0"]).fails()
    assert f"(markupsafe==3.0.4 --hash=sha256:{wheel()[-64:]})" in refused.text.lower()
    run(**given, python_runtime_packages=[pin + wheel()[-64:]]).expect(0)


@pytest.mark.long
def test_a_missing_venv_module_is_installed_or_named(run, bare):
    package = bare.check_output(
        "dpkg-query -S $(python3 -c 'import ensurepip; print(ensurepip.__path__[0])')/__init__.py"
    )
    package = package.split(":")[0]
    bare.check_output(f"sudo dpkg --remove --force-depends {package}")
    try:
        refused = run(python_runtime_manage_system=False)
        refused.fails("cannot make virtual environments: its module ensurepip is missing; install python3")
        run().expect(0)
        assert bare.package(package).is_installed
    finally:
        bare.check_output(
            f"dpkg-query -W -f '${{Status}}' {package} | grep -q 'ok installed' "
            f"|| sudo apt-get install -y -qq {package}"
        )


@pytest.fixture
def without_headers(node):
    """The first node without the headers of its Python; at the end all is as it was."""
    installed = "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' | sed -n 's/^ii  //p'"
    version = node.check_output("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    headers = [f"python{version}-dev", f"libpython{version}-dev"]
    before = node.check_output(installed).split()
    node.run(f"sudo dpkg --remove --force-depends {' '.join(headers)}")
    yield f"/usr/include/python{version}"
    new = [name for name in node.check_output(installed).split() if name not in before]
    gone = [name for name in headers if name in before]
    if gone:
        node.check_output(f"sudo apt-get install -y -qq --no-install-recommends {' '.join(gone)}")
    if new:
        node.check_output(f"sudo apt-get purge -y -qq {' '.join(new)}")


@pytest.mark.long
def test_compilers_are_installed_on_request(run, bare, without_headers):
    assert run().rc == 0
    refused = run(python_runtime_compiler=True, python_runtime_manage_system=False)
    refused.fails("Python.h is missing, which compiling extensions (python_runtime_compiler) needs")
    found = run(python_runtime_compiler=True, step="verify")
    found.fails(f"{OTHER} differs from what is requested: ", "Python.h is missing")
    run(python_runtime_compiler=True).expect(0)
    for compiler in ("cc", "c++"):
        source = "echo '#include <Python.h>\nint main(void) { return 0; }'"
        language = "c++" if compiler == "c++" else "c"
        bare.check_output(f"{source} | sudo -u train {compiler} -x {language} -fsyntax-only -I{without_headers} -")
    assert set(run(python_runtime_compiler=True).changes.values()) == {0}
    assert run(python_runtime_compiler=True, step="verify").rc == 0
