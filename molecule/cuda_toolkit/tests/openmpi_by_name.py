"""CUDA beside an Open MPI that is built from source: minutes, so it runs by name."""

from test_cuda_toolkit import AS_TRAIN, LINK, first, side_by_side

# Fixtures that the test gets by their names.
__all__ = ["first", "side_by_side"]


def test_cuda_and_openmpi_share_the_one_setenv_that_sshd_takes(side_by_side, node, node_names, first, run_playbook):
    """From another node, by ssh without a login shell, as mpirun starts its processes."""
    run_playbook("openmpi.yml", "--limit", first, openmpi_provider="source").expect(0)
    ask = f"{AS_TRAIN} ssh -o BatchMode=yes {first} 'echo $PATH $LD_LIBRARY_PATH $CUDA_HOME'"
    asked = node(node_names[-1]).check_output(ask)
    system, openmpi = "/usr/local/bin:/usr/bin:/bin", "/opt/trainyard/openmpi"
    assert asked.split() == [f"{LINK}/bin:{openmpi}/bin:{system}", f"{openmpi}/lib", LINK]
    run_playbook("openmpi.yml", "--limit", first, openmpi_provider="distro").expect(0)
    assert node(node_names[-1]).check_output(ask).split() == [f"{LINK}/bin:{system}", LINK]
