"""An existing Open MPI that is used, lacking or odd, and the preview of a build: rules that have unit tests.

pytest tests/providers_by_name.py in the scenario's folder, after `make molecule SCENARIO=openmpi`.
"""

import pytest
from lab_jobs import host_list
from test_openmpi import AS_TRAIN

SITE, LINK = "/opt/site/openmpi-4.1.4", "/opt/trainyard/openmpi"


@pytest.fixture(scope="module")
def existing(node, node_names):
    """Put Debian's Open MPI under another prefix on two nodes, as one of MLNX_OFED or HPC-X would be."""
    two = (node_names[0], node_names[-1])
    system = "/usr/lib/x86_64-linux-gnu/openmpi"
    for name in two:
        node(name).check_output(
            f"sudo sh -ec 'mkdir -p {SITE}/bin; cd {SITE}; ln -s {system}/lib {system}/include .;"
            "for each in mpirun orted mpicc ompi_info; do ln -s /usr/bin/$each bin/; done'"
        )
    yield two
    for name in two:
        node(name).check_output(f"sudo rm -rf /opt/site /opt/trainyard/odd {LINK}")


@pytest.fixture
def packages_again(existing, run_playbook):
    """Return to the packages of the system."""
    yield existing
    run_playbook("changed.yml").expect(0)


def test_an_existing_open_mpi_is_named_where_it_is_lacking_and_left_where_it_is(run_playbook, packages_again, node):
    given = {"openmpi_provider": "existing", "openmpi_prefix": SITE}
    two, last = ("--limit", ",".join(packages_again)), packages_again[-1]
    node(last).check_output(f"sudo mv {SITE}/bin/mpirun {SITE}/bin/away")
    lacking = run_playbook("changed.yml", *two, **given).fails(
        f"Open MPI cannot be used: 1 finding. Nothing was changed. 1. openmpi_prefix on {last} "
        f"found no {SITE}/bin/mpirun that answers as Open MPI"
    )
    lacking.changes_nothing()
    node(last).check_output(f"sudo mv {SITE}/bin/away {SITE}/bin/mpirun")
    run_playbook("changed.yml", *two, **given).expect(0)
    run_playbook("changed.yml", *two, **given).expect(0).changes_nothing()


def test_a_preview_names_the_building_node(run_playbook, node_names):
    first, *others = two = node_names[:2]
    done = run_playbook("changed.yml", "--limit", ",".join(two), "--check", openmpi_provider="source").expect(0)
    configure = "configure --prefix=/opt/trainyard/openmpi-4.1.8 --without-cuda --without-ucx"
    assert f"{first}: Open MPI 4.1.8 is built: {configure} --enable-mpirun-prefix-by-default" in done.text
    for name in others:
        assert f"{name}: Open MPI 4.1.8 is copied from {first}: {configure}" in done.text


def test_an_existing_open_mpi_is_used_and_verified(run_playbook, existing, node):
    given = {"openmpi_provider": "existing", "openmpi_prefix": SITE}
    first = existing[0]
    run_playbook("changed.yml", "--limit", ",".join(existing), **given).expect(0)
    for name in existing:
        found = node(first).check_output(f"{AS_TRAIN} ssh -o BatchMode=yes {name} 'command -v mpirun; readlink {LINK}'")
        assert found.split() == [f"{LINK}/bin/mpirun", SITE]


def test_a_node_with_another_version_is_named_and_the_role_goes_back_to_the_packages(
    run_playbook, existing, node_names, node
):
    """The odd mpirun only tells its version. The role takes the links away, and the settings of sessions."""
    odd = node(node_names[-1])
    odd.check_output(
        f"sudo sh -ec 'mkdir -p /opt/trainyard/odd/bin; ln -sfn odd {LINK}; cd /opt/trainyard/odd/bin;"
        'printf "#!/bin/sh\\necho \\"mpirun (Open MPI) 4.0.3\\"\\n" >mpirun; chmod +x mpirun\''
    )
    run_playbook("changed.yml", step="verify").fails(
        f"Open MPI does not work over all nodes: 1 finding. 1. Open MPI on {node_names[-1]} "
        "found Open MPI 4.0.3 (/opt/trainyard/openmpi/bin/mpirun) expected Open MPI 4.1.4, as on "
        f"{host_list(node_names[:-1])} do make the nodes equal"
    )
    back = run_playbook("changed.yml").expect(0)
    assert {name for name, changes in back.changes.items() if changes} == set(existing)
    for name in existing:
        assert node(name).run(f"ls {LINK} /etc/ssh/sshd_config.d/*sessions* /etc/profile.d/*openmpi*").stdout == ""
