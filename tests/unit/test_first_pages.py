"""The first inventory, job file and script that a reader copies from README and docs fit any machine."""

import re
import sys
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.module_utils.trainyard.job.placement.placement import choose_devices
from ansible.module_utils.trainyard.software import pytorch
from ansible.module_utils.trainyard.software.requirements import systems_with
from ansible_run import PROJECT
from job_samples import make_job

FIRST_JOB = (PROJECT / "docs/first-job.md").read_text()
PAGES = {name: (PROJECT / name).read_text() for name in ("README.md", "docs/two-hosts.md")}


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_the_first_job_starts_on_a_machine_with_any_number_of_gpus(gpus):
    (text,) = re.findall(r"```yaml\n(.*?)```", FIRST_JOB, re.DOTALL)
    job = make_job(**{name.removeprefix("job_"): value for name, value in yaml.safe_load(text).items()})
    facts = {"accelerators": {"devices": [{"index": index} for index in range(gpus)]}}
    assert choose_devices(job, "localhost", facts) == ((), 2, [])


@pytest.mark.parametrize(("device", "backend"), [("cuda:1", "nccl"), ("cpu", "gloo")])
def test_the_first_script_computes_on_the_device_of_its_rank(device, backend, monkeypatch):
    torch = MagicMock()
    torch.cuda.is_available.return_value = device != "cpu"
    torch.distributed.get_rank.return_value = 1
    for name, module in {"": torch, ".distributed": torch.distributed, ".nn.parallel": torch.nn.parallel}.items():
        monkeypatch.setitem(sys.modules, f"torch{name}", module)
    monkeypatch.setitem(sys.modules, "torch.nn", torch.nn)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("os._exit", lambda status: None)
    (script,) = re.findall(r"```python\n(.*?)```", FIRST_JOB, re.DOTALL)
    exec(script, {})  # noqa: S102
    torch.distributed.init_process_group.assert_called_once_with(backend)
    torch.nn.Sequential.return_value.to.assert_called_once_with(device)
    assert {call.kwargs.get("device") for call in torch.randn.call_args_list} == {device}


@pytest.mark.parametrize("page", PAGES)
def test_the_first_inventory_names_what_its_nvidia_stack_installs(page):
    ((line, about),) = re.findall(r"^# (nvidia: .*\}) +# with NVIDIA GPUs: (.*)$", PAGES[page], re.MULTILINE)
    stacks = yaml.safe_load((PROJECT / "roles/nvidia_stack/vars/main/stacks.yml").read_text())
    # Without a stack, site.yml ends with a finding.
    chosen = stacks["__nvidia_stack_catalog"][yaml.safe_load(line)["nvidia"]["vars"]["nvidia_stack"]]["set"]
    parts = [part for part in ("driver", "cuda", "nccl", "cudnn") if chosen[part]["provider"] != "none"]
    assert about.lower().split(", ") == parts


@pytest.mark.parametrize("page", PAGES)
def test_the_hosts_of_the_first_pages_have_a_python_for_the_default_pytorch(page):
    default = re.search(r"or '(\d+\.\d+)\.\d+'", (PROJECT / "roles/pytorch/defaults/main.yml").read_text())[1]
    named = re.search(r"Debian (\d+ or \d+)\b.*? Ubuntu (\d\d\.\d\d) or (\d\d\.\d\d)", PAGES[page])
    debian = [f"Debian {number}" for number in named[1].split(" or ")]
    assert {*debian, f"Ubuntu {named[2]}", f"Ubuntu {named[3]}"} == set(systems_with(*pytorch.PYTHONS[default]))


def test_the_pytorch_for_debian_11_takes_its_python():
    release = re.search(r"Debian 11\b.*`pytorch_version: (\d\.\d)\.\d`", PAGES["docs/two-hosts.md"])[1]
    assert "Debian 11" in systems_with(*pytorch.PYTHONS[release])
